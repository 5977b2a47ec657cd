// A layer of a stream's windows, all of which read the token. And who does what. Follows cuda_one.cu.
//
// A warp does eight windows, a tile, and the columns of two groups: whatever comes out of shared memory is used eight times.
// Windows of different tiles have nothing to do with each other but the token. So a step of a tile waits for the step before
// of the same tile, which all columns have to have done; each of its warps adds one to the tile's count. A step writes where h
// of two steps ago stood: its own layer has read that in the step before; the layer above must have done that step, too.
//
// Two warps share each of a core's schedulers. Those of the first layer take turns, even tiles first: while one multiplies, the other is a
// cell, or waits for the rest of its tile. Side by side they would be in step, and wait together.

#define TILE 8
#define TOGETHER 2
#define BEHIND 2  // steps that a tile may be behind another
#define AHEAD 6   // parts of eight rows that a warp has at hand or under way

// Read from shared memory here, not where the compiler finds a register free.
__device__ __forceinline__ float4 at_once(unsigned from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
    return v;
}

// As add_products, of a tile and two groups, whose weights lie so far apart in shared memory. Rows come there several parts
// ahead; and what the next part needs is read from there while this one is multiplied. All begins with the warp's `turn`, but for
// what has far to come.
template <class Turn>
__device__ __forceinline__ void add_windows(float (&sums)[TOGETHER][TILE][4], const float4* w, int apart,
                                            const float4* const (&rows)[TILE / 4], int parts, int lane, float4* ring, Turn turn) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(ring + lane), x = (unsigned)__cvta_generic_to_shared(ring + lane % 8);
    const unsigned weights = (unsigned)__cvta_generic_to_shared(w + lane);
    float4 v[2][TOGETHER][4], own[2];
    int came = 0, goes = 0;  // places in the ring: of the part that is read next, and of the one that is brought next
    auto bring = [&](int part) {
        if (part < parts)
#pragma unroll
            for (int i = 0; i < TILE / 4; ++i)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (goes * TILE * 8 + 32 * i) * 16),
                             "l"(rows[i] + 8 * part) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        goes = goes + 1 == AHEAD ? 0 : goes + 1;
    };
    auto weight = [&](int part, int n) { return at_once(weights + 16 * (n / 4 * apart + (part * 4 + n % 4) * 32)); };
    auto add = [&](int part, const float4 (&v)[TOGETHER][4], float4 (&v_next)[TOGETHER][4]) {
        const unsigned row = x + came * TILE * 128;
        const int later = min(part + 1, parts - 1);
        came = came + 1 == AHEAD ? 0 : came + 1;
        const unsigned next_row = x + came * TILE * 128;
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
            v_next[r / 4][r % 4] = weight(later, r);
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) multiply<true>(sums[g][r], own[r % 2], v[g]);
            if (r == 3) {  // the next part is here, and nobody reads the last one any more
                asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 3) : "memory");
                __syncwarp();
                bring(part + AHEAD - 1);
            }
            own[r % 2] = at_once(r + 2 < TILE ? row + 128 * (r + 2) : next_row + 128 * (r + 2 - TILE));
        }
    };
    __syncwarp();
#pragma unroll
    for (int part = 0; part < AHEAD - 1; ++part) bring(part);
#pragma unroll
    for (int n = 0; n < 4 * TOGETHER; ++n) v[0][n / 4][n % 4] = weight(0, n);
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 2) : "memory");
    turn();
    __syncwarp();
    own[0] = at_once(x);
    own[1] = at_once(x + 128);
#pragma unroll 1
    for (int part = 0; part < parts; part += 2) {
        add(part, v[0], v[1]);
        if (part + 1 < parts) add(part + 1, v[1], v[0]);
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// What each symbol means for the units of the block's groups is brought to shared memory, if there is room.
__device__ __forceinline__ void settle_table(const Arguments& a, const Place& p) {
    if (p.table < 0) return;
    const Items own(p);
    const int units = own.units(p);
    for (int n = threadIdx.x; n < a.V * units; n += 32 * ALONE_WARPS)
        pool[p.table / 4 + n] = ((const float4*)(a.weights + p.bias))[(i64)(n / units) * a.H + 4 * own.group + n % units];
}

__device__ __forceinline__ void rolling(const Arguments& a, const Place* places, int number, const Row& row, int last, const unsigned* begun) {
    const Place& p = places[number];
    const Items own(p);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, l = lane % 8, H = a.H, top = a.layers - 1;
    const int parts = number ? p.parts / 2 : p.parts, size = p.parts * 128, each = p.groups / TOGETHER;
    const int tiles = (a.windows + TILE - 1) / TILE, units = own.units(p);
    const i64 n_first = a.now - row.begun, half = (i64)a.windows * H;
    const float* first_h = a.weights + p.first_h;
    const float4* inputs = (const float4*)(a.weights + p.bias);
    const volatile u64* told = nearest_copy(a) + copy_size(a) - 4;
    float4* ring = pool + a.scratch / 4 + warp * AHEAD * TILE * 8;
    int begins = n_first % a.windows, oldest = n_first + 1 > a.windows ? (n_first + 1) % a.windows : 0;
    const bool in_turns = number == 0 && p.each > ALONE_WARPS / 2;
    bool had_turns = false;
    // One lane waits until all warps of a layer have done so many steps of a tile.
    auto wait = [&](int layer, int tile, int steps) {
        const unsigned* count = a.reached + layer * tiles + tile;
        const unsigned needed = begun[layer] + steps * each;
        unsigned seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
        while ((int)(seen - needed) < 0);
    };
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t, n = n_first + t;
        const bool given = t == 0 || now <= row.draws;
        const int known = n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + n] : last;
        const float* h = a.h + (2 * number + (now & 1)) * half;
        float* h_next = a.h + (2 * number + (~now & 1)) * half;
#pragma unroll 1
        for (int first = own.first; first < own.end; first += ALONE_WARPS) {
            const int item = first + (in_turns ? warp % 4 * 2 + warp / 4 : warp), beside = first + warp % 4 * 2 + 1 - warp / 4;
            const int tile = item % (int)p.tiles, group = item / (int)p.tiles * TOGETHER, u = 4 * group + lane / 8;
            if (item >= own.end || tile >= tiles) continue;
            const int tile_beside = beside % (int)p.tiles;
            const bool turns = in_turns && beside < own.end && tile_beside < tiles;
            const bool leads = tile % 2 == tile_beside % 2 ? warp < 4 : tile % 2 == 0;
            const int barrier = 2 + warp % 4 * 2 + leads;  // the one that the other warp lets this one pass
            for (int other = lane; other < tiles; other += 32) wait(number, other, other == tile ? t : t - BEHIND);
            if (number < top && lane == 31) wait(number + 1, tile, t - 1);
            __syncwarp();
            const int window = TILE * tile + l, at = min(window, a.windows - 1);
            float state[TOGETHER], sums[TOGETHER][TILE][4] = {};
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) {
                const int unit = u + 4 * g;
#if CELL == GRU || CELL == RNN
                state[g] = at == begins ? first_h[unit] : __ldcg(h + (i64)at * H + unit);
#else
                state[g] = at == begins ? a.weights[p.first_c + unit] : a.c[number * half + (i64)at * H + unit];
#endif
            }
#pragma unroll 1
            for (int below = 0; below <= (number > 0); ++below) {
                if (below && lane == 0) wait(number - 1, tile, t + 1);
                __syncwarp();
                const float4* from[TILE / 4];
#pragma unroll
                for (int i = 0; i < TILE / 4; ++i) {
                    const int other = min(TILE * tile + 4 * i + lane / 8, a.windows - 1);
                    const float* start = below ? h_next - 2 * half : h;
                    from[i] = (const float4*)(other == begins && !below ? first_h : start + (i64)other * H) + l;
                }
                add_windows(sums, pool + (group - own.group) * size + below * parts * 128, size, from, parts, lane, ring, [&] {
                    if (turns && (had_turns || !leads)) asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory");
                });
                if (turns) asm volatile("bar.arrive %0, 64;" ::"r"(barrier ^ 1) : "memory");
                had_turns |= turns;
            }
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) met(sums[g], lane);
            const Peepholes peepholes[TOGETHER] = {peepholes_of(a, p, u), peepholes_of(a, p, u + 4)};
            const int id = number ? 0 : given ? known : asked(told, now);  // needed only here
            float out[TOGETHER];
            float4 x4[TOGETHER];
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g)
                x4[g] = number || p.table < 0 ? inputs[(i64)id * H + u + 4 * g] : pool[p.table / 4 + id * units + u + 4 * g - 4 * own.group];
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) out[g] = next(x4[g], four(sums[g][0]), state[g], peepholes[g]);
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) {
                const int unit = u + 4 * g;
                if (number == top && tile == oldest / TILE) {  // a copy by each of the eight lanes
                    const float told_out = __shfl_sync(FULL, out[g], (lane & 24) | oldest % TILE);
                    tell(a.line + l * copy_size(a) + (2 * number + (~now & 1)) * H + unit, told_out, (unsigned)now + 1);
                }
                if (window >= a.windows) continue;
                h_next[(i64)at * H + unit] = out[g];
#if CELL != GRU && CELL != RNN
                a.c[number * half + (i64)at * H + unit] = state[g];
#endif
            }
            __syncwarp();
            if (lane == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a.reached + number * tiles + tile) : "memory");
        }
        if (++begins == a.windows) begins = 0;
        if (n + 2 > a.windows && ++oldest == a.windows) oldest = 0;
    }
}

template <bool ROLLING>
__device__ __forceinline__ void alone(const Arguments& a) {
    __shared__ Place places[MOST_LAYERS + 2];
    __shared__ Row row;
    __shared__ volatile u64 told[4];
    __shared__ int last;
    __shared__ unsigned begun[MOST_LAYERS];  // what the layers' counts begin from; all tiles are equally far
    const int warp = threadIdx.x / 32;
    unsigned epoch = a.arrived[blockIdx.x];
    if (threadIdx.x == 0) {
        row = a.rows[0];
        last = a.last[0];
    }
    if (threadIdx.x < 4) told[threadIdx.x] = ~0ull;
    if (ROLLING && threadIdx.x < a.layers) begun[threadIdx.x] = a.reached[threadIdx.x * ((a.windows + TILE - 1) / TILE)];
    for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += 32 * ALONE_WARPS)
        ((i64*)places)[n] = ((const i64*)a.places)[n];
    __syncthreads();
    int number = a.layers + 1;  // the product that is this block's
    while (number >= 0 && (blockIdx.x < places[number].block || blockIdx.x >= places[number].block + places[number].blocks)) --number;
    const bool layers = number >= 0 && number < a.layers, chosen_here = ROLLING && blockIdx.x == places[a.layers + 1].block;
    if (number >= 0) settle_own(a, places[number]);
    if (ROLLING && number == 0) settle_table(a, places[0]);
    __syncthreads();
    // A block may draw, or count, before another has seen what was drawn last and what the counts are.
    if (ROLLING) meet<ALONE_WARPS>(a.arrived, epoch);
    if (number < 0) return;
    if (ROLLING && layers) {
        rolling(a, places, number, row, last, begun);
    } else if (warp == CHOOSER && (ROLLING ? chosen_here : layers)) {
        if (!a.chooses) return;
        if (ROLLING) choosing(a, row, true, a.line + copy_size(a) - 4, COPIES, copy_size(a));
        else if (number == 0) choosing(a, row, blockIdx.x == 0, told, 1, 0);
    } else if (layers) {
        running_on(a, places[number], number, row, last, told);
    } else {
        heading(a, places[number], number > a.layers, chosen_here ? CHOOSER : ALONE_WARPS);
    }
}

extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) one(const __grid_constant__ Arguments a) { alone<false>(a); }
extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) windows(const __grid_constant__ Arguments a) { alone<true>(a); }
