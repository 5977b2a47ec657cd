// A layer of a stream's windows, all of which read the token. And who does what. Follows cuda_one.cu.
//
// A block has some groups of columns, whose weights it keeps. Its eight warps are two crews, which have nothing to do with each
// other: while one multiplies, the other adds up, is the cell, or waits. A crew has some tiles of eight windows, and
// multiplies two at a time, each warp a slice of the terms with all of the groups; h comes straight from where it was written, and is
// used up as it comes. The warps' sums meet in shared memory, where each warp adds up what is for some of the units, and
// later is the cell for these. The first layer can do that only when the token has come; the others do it at once for the
// tile that predicts and the one beside it, which come first.
//
// Windows of different tiles have nothing to do with each other but the token. So a slice waits for its own terms in the step before
// of its own tiles; a crew that has written its groups' part of a tile adds their number to the count of the slice that they are in. A
// step writes where h of two steps ago stood: its own layer has read that in the step before, since all slices of a crew
// have waited for their part of that step; the layer above must have done that step, too.

#define TILE 8
#define SPREAD 32  // counts lie so far apart: whoever looks at one is in nobody's way
#define BEHIND (TOLD / 2)  // steps that a tile may be behind another, which is looked after every
#define OFTEN (TOLD / 4)   // so many steps
#define CREW (32 * SLICES)  // threads
#define MOST_GROUPS 4  // whose sums a warp can have at once

// What a crew has to do: the block's groups of columns, tiles of windows of its own, and where in shared memory things are.
struct Part {
    int group, groups, tile, tiles, pairs;
    float4 *between, *sums;  // the warps' sums on their way, and those that are added up
    float* state;            // c, or where there is none, h
    float4* constants;       // of the block's units: peepholes, and the state that a window begins from
    int* slices;             // that the block's groups are in; and behind them, the crews' tokens
    __device__ Part(const Place& p, int all_tiles) {
        const int across = (p.groups + p.together - 1) / p.together, crews = 2 * (p.blocks / across), number = blockIdx.x - p.block;
        const int crew = threadIdx.x / CREW, share = number / across * 2 + crew, items = p.tiles * p.together;
        group = number % across * p.together;
        groups = min((int)p.together, (int)p.groups - group);
        tile = share * all_tiles / crews;
        tiles = (share + 1) * all_tiles / crews - tile;
        pairs = (tiles + 1) / 2;
        float4* from = pool + p.together * p.parts * 128;
        between = from + crew * SLICES * 2 * p.together * 32;
        from += 2 * SLICES * 2 * p.together * 32;
        sums = from + crew * items * 32;
        from += 2 * items * 32;
        state = (float*)from + crew * items * 32;
        constants = from + 2 * items * 8;
        slices = (int*)(constants + 4 * p.together);
    }
    // The pair of tiles that comes at a place in the step's order, which begins with one of them.
    __device__ __forceinline__ int pair(int first, int i) const { return first + i < pairs ? first + i : first + i - pairs; }
};

// All of a crew have come here.
__device__ __forceinline__ void crew_meets() { asm volatile("bar.sync %0, %1;" ::"r"(2 + threadIdx.x / CREW), "n"(CREW) : "memory"); }

// What the block needs to know of its units is brought to shared memory: also what each symbol means for them, if there is room.
__device__ __forceinline__ void settle_units(const Arguments& a, const Place& p, const Part& own, int symbols) {
    const int units = 4 * own.groups;
    if ((int)threadIdx.x < units) {
        const int u = 4 * own.group + threadIdx.x;
        const Peepholes w = peepholes_of(a, p, u);
#if CELL == GRU || CELL == RNN
        const float first = joined_at(a.weights + p.first_h, 0, u);
#else
        const float first = a.weights[p.first_c + u];
#endif
        own.constants[threadIdx.x] = make_float4(w.i, w.f, w.o, first);
    }
    if ((int)threadIdx.x < own.groups) own.slices[threadIdx.x] = slice_of(own.group + threadIdx.x, a.H / 16);
    if (p.table >= 0)
        for (int n = threadIdx.x; n < symbols * units; n += 32 * ALONE_WARPS)
            pool[p.table / 4 + n] = ((const float4*)(a.weights + p.bias))[(i64)(n / units) * a.H + 4 * own.group + n % units];
}

#define IN_FLIGHT 4  // chunks of a slice that have been asked for

struct Ahead {  // a warp's slice of one or two tiles: where it is, and its next chunks
    const uint4* from[2];
    uint4 x[IN_FLIGHT][2];
    __device__ __forceinline__ void ask(int n, int chunk) {
#pragma unroll
        for (int i = 0; i < 2; ++i) x[n][i] = __ldcg(from[i] + 32 * chunk);
    }
    __device__ __forceinline__ void begin(int count) {
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; ++n)
            if (n < count) ask(n, n);
    }
};

// A warp's slice of some tiles, of so many chunks, so many at a time, with some groups, whose weights are so far apart.
template <int TILES, int GROUPS, int CHUNKS>
__device__ __forceinline__ void multiply_slice(Ahead& ahead, int count, const uint4* w, int size, float4* to, int groups) {
    Sums<TILES> sums[GROUPS];
#pragma unroll 1
    for (int chunk = 0; chunk < count; chunk += CHUNKS, w += 64 * CHUNKS) {
#pragma unroll
        for (int n = 0; n < CHUNKS; ++n) {
            uint4 tiles[TILES];
#pragma unroll
            for (int i = 0; i < TILES; ++i) tiles[i] = ahead.x[n][i];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) sums[g].add(w[64 * n + g * size], w[64 * n + g * size + 32], tiles);
            if (chunk + CHUNKS < count) ahead.ask(n, chunk + n + CHUNKS);
        }
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int i = 0; i < TILES; ++i)
            to[(i * groups + g) * 32] = make_float4(sums[g].at(i, 0), sums[g].at(i, 1), sums[g].at(i, 2), sums[g].at(i, 3));
}
template <int TILES, int CHUNKS>
__device__ __forceinline__ void multiply_slice(Ahead& ahead, int count, const uint4* w, int size, float4* to, int groups) {
#pragma unroll 1
    for (int first = 0; first < groups; first += MOST_GROUPS, w += MOST_GROUPS * size, to += MOST_GROUPS * 32) {
        if (first) ahead.begin(count);  // once more
        switch (min(MOST_GROUPS, groups - first)) {
            case 1: multiply_slice<TILES, 1, CHUNKS>(ahead, count, w, size, to, groups); break;
            case 2: multiply_slice<TILES, 2, CHUNKS>(ahead, count, w, size, to, groups); break;
            case 3: multiply_slice<TILES, 3, CHUNKS>(ahead, count, w, size, to, groups); break;
            default: multiply_slice<TILES, 4, CHUNKS>(ahead, count, w, size, to, groups);
        }
    }
}
template <int TILES>
__device__ __forceinline__ void multiply_slice(Ahead& ahead, int count, const uint4* w, int size, float4* to, int groups) {
    if (count % 4 == 0) multiply_slice<TILES, 4>(ahead, count, w, size, to, groups);
    else if (count % 2 == 0) multiply_slice<TILES, 2>(ahead, count, w, size, to, groups);
    else multiply_slice<TILES, 1>(ahead, count, w, size, to, groups);
}

// A count that a lane looks at: what it is when so many steps are done.
struct Count {
    const unsigned* at;
    unsigned begun, each;
    __device__ __forceinline__ Count(const Arguments& a, int layer, int tile, int slice, const unsigned (*begun_at)[SLICES]) {
        const int tiles = (a.windows + TILE - 1) / TILE, chunks = a.H / 16;
        at = a.reached + ((layer * tiles + tile) * SLICES + slice) * SPREAD;
        begun = begun_at[layer][slice];
        each = 4 * ((slice + 1) * chunks / SLICES - slice * chunks / SLICES);
    }
    // What was written before is then read where it was written, in the second-level cache.
    __device__ __forceinline__ bool reached(int steps) const {
        unsigned seen;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
        return (int)(seen - begun - steps * each) >= 0;
    }
};

// What a warp needs to know to be the cell, of one of every two tiles and of every second group.
struct Cell {
    const Part& own;
    const float4* symbols;  // what they mean for the block's units, and how far apart
    int apart, lane;
    float* h_next;          // of the crew's first tile
    u64* line;              // of the block's first unit, or none
    int H, step, begins, predicts;  // windows, from the crew's first on

    // From the sums of one or two groups, two apart, in one or two tiles, to h.
    template <int GROUPS, int TILES>
    __device__ __forceinline__ void be(int id, int group, int tile, int other_tile) const {
        typedef Several<GROUPS * TILES> Values;
        GatesOf<Values> x, sum;
        PeepholesOf<Values> w;
        Values state;
        int place[GROUPS * TILES];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const int unit = 4 * (group + 2 * g) + lane / 8;
            const float4 constants = own.constants[unit], means = symbols[id * apart + unit];
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                const int k = g * TILES + i, at = i ? other_tile : tile;
                place[k] = (at * own.groups + group + 2 * g) * 32 + lane;
                const float4 s = own.sums[place[k]];
                const float kept = own.state[place[k]];
                x.i.v[k] = means.x; x.f.v[k] = means.y; x.g.v[k] = means.z; x.o.v[k] = means.w;
                sum.i.v[k] = s.x; sum.f.v[k] = s.y; sum.g.v[k] = s.z; sum.o.v[k] = s.w;
                w.i.v[k] = constants.x; w.f.v[k] = constants.y; w.o.v[k] = constants.z;
                state.v[k] = TILE * at + row_of(lane) == begins ? constants.w : kept;
            }
        }
        const Values out = next(x, sum, state, w);
#pragma unroll
        for (int k = 0; k < GROUPS * TILES; ++k) {
            const int g = k / TILES, at = k % TILES ? other_tile : tile, its = group + 2 * g;
            if (at == predicts / TILE) {  // a copy by each of the eight lanes that have the unit
                const float told = __shfl_sync(FULL, out.v[k], (lane & 24) | predicts % 2 * 4 | predicts % TILE / 2);
                if (line) tell(line + 4 * its, told, step);
            }
            const u32 halves = split(out.v[k]);
            put(h_next + at * TILE * H, own.group + its, halves, lane);
#if CELL == GRU || CELL == RNN
            state.v[k] = joined(halves);
#endif
            own.state[place[k]] = state.v[k];
        }
    }
    template <int TILES>
    __device__ __forceinline__ void be(int id, int first_group, int tile, int other_tile) const {
        int group = first_group;
        for (; group + 2 < own.groups; group += 4) be<2, TILES>(id, group, tile, other_tile);
        if (group < own.groups) be<1, TILES>(id, group, tile, other_tile);
    }
};

__device__ __forceinline__ void rolling(const Arguments& a, const Place* places, int number, const Row& row, int last,
                                        const unsigned (*begun)[SLICES]) {
    const Place& p = places[number];
    const int warp = threadIdx.x / 32 % SLICES, lane = threadIdx.x % 32, H = a.H, chunks = H / 16, top = a.layers - 1;
    const int all_tiles = (a.windows + TILE - 1) / TILE, size = p.parts * 128;
    const Part own(p, all_tiles);
    if (own.tiles == 0) return;
    const Slice slice(warp, chunks, number > 0);
    const int count = slice.end - slice.first, side = warp % 2, first_group = warp / 2;
    const i64 n_first = a.now - row.begun, half = (i64)all_tiles * TILE * H, start = (i64)own.tile * TILE * H;
    const uint4* weights = (const uint4*)pool + lane + 64 * ((slice.below ? chunks : 0) + slice.first);
    const uint4* anew = (const uint4*)(a.weights + p.first_h) + 32 * slice.first + lane;
    const volatile u64* told = nearest_copy(a) + copy_size(a) - TOLD;
    int* token = own.slices + own.groups + threadIdx.x / CREW;
    int begins = n_first % a.windows, oldest = n_first + 1 > a.windows ? (n_first + 1) % a.windows : 0;
    // A lane looks after a tile: has its own slice been written, and what it would overwrite been read?
    const int below = slice.below ? 1 : 0, looked_after = own.tile + min(lane, own.tiles - 1);
    const Count one(a, number - below, looked_after, number ? warp % 2 * 2 : warp, begun);
    const Count two(a, number - below, looked_after, number ? warp % 2 * 2 + 1 : warp, begun);
    const Count above(a, min(number + 1, top), looked_after, warp, begun);
    const unsigned all = ~0u >> (32 - own.tiles);
    int alike = 1;  // so many of the groups, from the first on, are in one slice
    while (alike < own.groups && own.slices[alike] == own.slices[0]) ++alike;
    Cell cell = {own, p.table < 0 ? (const float4*)(a.weights + p.bias) + 4 * own.group : pool + (int)p.table / 4,
                 p.table < 0 ? H : 4 * own.groups, lane};
    cell.H = H;
    for (int tile = side; tile < own.tiles; tile += 2)
        for (int group = first_group; group < own.groups; group += 2) {
            float& state = own.state[(tile * own.groups + group) * 32 + lane];
            const int u = 4 * (own.group + group) + lane / 8;
#if CELL == GRU || CELL == RNN
            state = joined_at(a.h + (2 * number + (a.now & 1)) * half + start + tile * TILE * H, row_of(lane), u);
#else
            const int at = min(TILE * (own.tile + tile) + row_of(lane), a.windows - 1);
            state = a.c[((i64)number * a.windows + at) * H + u];
#endif
        }
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t, n = n_first + t;
        const bool given = t == 0 || now <= row.draws;
        const float* from = a.h + (2 * (number - below) + ((now & 1) ^ below)) * half + start;
        const uint4* h = (const uint4*)from + 32 * slice.first + lane;
        const int begins_here = below ? -1 : begins - TILE * own.tile;
        cell.h_next = a.h + (2 * number + (~now & 1)) * half + start;
        cell.line = number == top ? a.line + lane % 8 * copy_size(a) + (2 * number + (~now & 1)) * H + 4 * own.group + lane / 8 : nullptr;
        cell.step = (int)now + 1;
        cell.begins = begins - TILE * own.tile;
        const int predicts = oldest - TILE * own.tile;
        const bool here = predicts >= 0 && predicts < TILE * own.tiles;
        cell.predicts = here ? predicts : -TILE;
        const int first = here ? predicts / (2 * TILE) : 0;
        if (number == 0 && t % OFTEN == 0)
            for (int other = lane; other < all_tiles; other += 32) while (!Count(a, 0, other, warp, begun).reached(t - BEHIND));
        unsigned ready = 0;  // of the crew's tiles, those that the warp may go on with
        Ahead ahead;
        // Asks for the first of the warp's slice of a pair of tiles, as soon as it is there.
        auto begin = [&](int pair) {
            const unsigned needed = 3u << 2 * pair & all;
            while (needed & ~ready) {
                bool found = one.reached(t + below);
                if (number) found &= two.reached(t + below);
                if (number < top) found &= above.reached(t - 1);
                ready = __ballot_sync(FULL, found);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int tile = min(2 * pair + i, own.tiles - 1);
                ahead.from[i] = TILE * tile + lane / 4 == begins_here ? anew : h + tile * 2 * H;
            }
            ahead.begin(count);
        };
        begin(first);
#pragma unroll 1
        for (int i = 0; i < own.pairs + 2; ++i) {
            if (i < own.pairs) {
                const int pair = own.pair(first, i);
                float4* to = own.between + warp * 2 * own.groups * 32 + lane;
                crew_meets();  // all have added up what was between them
                if (2 * pair + 1 < own.tiles) multiply_slice<2>(ahead, count, weights, size, to, own.groups);
                else multiply_slice<1>(ahead, count, weights, size, to, own.groups);
                // Nothing that a token waits for may wait for what the next tiles need.
                if (i + 1 < own.pairs && (number == 0 || i > 0)) begin(own.pair(first, i + 1));
                crew_meets();
                const int tile = 2 * pair + side;
                if (tile < own.tiles)
                    for (int group = first_group; group < own.groups; group += 2) {
                        const float4* from = own.between + (side * own.groups + group) * 32 + lane;
                        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                        for (int other = 0; other < SLICES; ++other) {
                            const float4 v = from[other * 2 * own.groups * 32];
                            sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
                        }
                        own.sums[(tile * own.groups + group) * 32 + lane] = gates_of(sum, lane);
                    }
            } else if (number == 0 && i == own.pairs) {
                if (warp == 0) {  // one asks for all
                    const int id = !given ? asked(told, now) : n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + n] : last;
                    if (lane == 0) *token = id;
                }
                crew_meets();
            }
            // Cells are due of the first pair, for which the head or the layer above waits, and then of the rest; or of all at once.
            const bool whole = top == 0, at_first = i == (number ? 0 : own.pairs), at_last = i == own.pairs + 1;
            const int from = at_last, end = at_first ? (whole ? own.pairs : 1) : at_last && !whole ? own.pairs : 0;
            const int id = number ? 0 : *(volatile int*)token;
#pragma unroll 1
            for (int k = from; k < end; k += 2) {
                int tile = 2 * own.pair(first, k) + side, other_tile = k + 1 < end ? 2 * own.pair(first, k + 1) + side : own.tiles;
                if (tile >= own.tiles) tile = other_tile, other_tile = own.tiles;
                if (other_tile < own.tiles) cell.be<2>(id, first_group, tile, other_tile);
                else if (tile < own.tiles) cell.be<1>(id, first_group, tile, tile);
            }
            // What the crew has written is there for all; where nobody waits for the first pair, that is told with the rest.
            const bool late = number == top && !whole;
            const int told_from = late ? 0 : from, told_end = late && !at_last ? 0 : end;
            if (told_from < told_end) {
                crew_meets();
                if (warp == 0)
                    for (int k = 2 * told_from + lane; k < 2 * told_end; k += 32) {
                        const int tile = 2 * own.pair(first, k / 2) + k % 2;
                        unsigned* counts = a.reached + (number * all_tiles + own.tile + tile) * SLICES * SPREAD;
                        if (tile < own.tiles)
                            for (int group = 0, n = alike; group < own.groups; group += n, n = 1)
                                asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counts + own.slices[group] * SPREAD), "r"(n) : "memory");
                    }
            }
            if (i == 0 && own.pairs > 1 && number) begin(own.pair(first, 1));
        }
        if (++begins == a.windows) begins = 0;
        if (n + 2 > a.windows && ++oldest == a.windows) oldest = 0;
    }
#if CELL != GRU && CELL != RNN
    for (int tile = side; tile < own.tiles; tile += 2)
        for (int group = first_group; group < own.groups; group += 2) {
            const int at = TILE * (own.tile + tile) + row_of(lane), u = 4 * (own.group + group) + lane / 8;
            if (at < a.windows) a.c[((i64)number * a.windows + at) * H + u] = own.state[(tile * own.groups + group) * 32 + lane];
        }
#endif
}

template <bool ROLLING>
__device__ __forceinline__ void alone(const Arguments& a) {
    __shared__ Place places[MOST_LAYERS + 2];
    __shared__ Row row;
    __shared__ volatile u64 told[TOLD];
    __shared__ int last;
    __shared__ unsigned begun[MOST_LAYERS][SLICES];  // what the counts begin from; all tiles are equally far
    const int warp = threadIdx.x / 32;
    unsigned epoch = a.arrived[blockIdx.x];
    if (threadIdx.x == 0) {
        row = a.rows[0];
        last = a.last[0];
    }
    if (threadIdx.x < TOLD) told[threadIdx.x] = ~0ull;
    const int tiles = (a.windows + TILE - 1) / TILE, slices = a.layers * SLICES;
    if (ROLLING && threadIdx.x < slices) begun[0][threadIdx.x] = a.reached[(threadIdx.x / SLICES * SLICES * tiles + threadIdx.x % SLICES) * SPREAD];
    for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += 32 * ALONE_WARPS)
        ((i64*)places)[n] = ((const i64*)a.places)[n];
    __syncthreads();
    int number = a.layers + 1;  // the product that is this block's
    while (number >= 0 && (blockIdx.x < places[number].block || blockIdx.x >= places[number].block + places[number].blocks)) --number;
    const bool layers = number >= 0 && number < a.layers, chosen_here = ROLLING && blockIdx.x == places[a.layers + 1].block;
    if (ROLLING && layers) {
        const Part own(places[number], tiles);
        settle_groups(a, places[number], own.group, own.groups);
        settle_units(a, places[number], own, number ? 1 : a.V);
    } else if (number >= 0 && places[number].resident >= 0) {
        const Items own(places[number]);
        settle_groups(a, places[number], own.first, own.end - own.first);
    }
    __syncthreads();
    // A block may draw, or count, before another has seen what was drawn last and what the counts are.
    if (ROLLING) meet<ALONE_WARPS>(a.arrived, epoch);
    if (number < 0) return;
    if (ROLLING && layers) {
        rolling(a, places, number, row, last, begun);
    } else if (warp == CHOOSER && (ROLLING ? chosen_here : layers)) {
        if (!a.chooses) return;
        if (ROLLING) choosing(a, row, true, a.line + copy_size(a) - TOLD, COPIES, copy_size(a));
        else if (number == 0) choosing(a, row, blockIdx.x == 0, told, 1, 0);
    } else if (layers) {
        running_on(a, places[number], number, row, last, told);
    } else {
        heading(a, places[number], number > a.layers, chosen_here ? CHOOSER : ALONE_WARPS);
    }
}

extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) one(const __grid_constant__ Arguments a) { alone<false>(a); }
extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) windows(const __grid_constant__ Arguments a) { alone<true>(a); }
