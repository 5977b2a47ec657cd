// A layer of a stream's windows, all of which read the token: a warp a tile of eight rows and two groups of columns, so that what
// comes out of shared memory is used eight times. And who does what. Follows cuda_one.cu.

#define TOGETHER 2

// A block's count of steps says how far it is. A step reads h of the step before, of all blocks of the layer, and what the layer
// below makes in this step; it writes where h of two steps ago stood, which the layer above must have read.
__device__ __forceinline__ void rolling(const Arguments& a, const Place* places, int number, const Row& row, int last,
                                        const volatile u64* told, unsigned begun) {
    const Place& p = places[number];
    const Items own(p);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, l = lane % 8, H = a.H, top = a.layers - 1;
    const int parts = number ? p.parts / 2 : p.parts, size = p.parts * 128;
    const i64 n_first = a.now - row.begun, half = (i64)a.windows * H;
    const float* first_h = a.weights + p.first_h;
    const float4* inputs = (const float4*)(a.weights + p.bias);
    float4* ring = ring_of(a);
    int begins = n_first % a.windows, oldest = n_first + 1 > a.windows ? (n_first + 1) % a.windows : 0;
    auto wait = [&](const Place& others, unsigned epoch) { look_out(a.arrived + others.block, others.blocks, epoch, 32 * FOR_LAYERS); };
    auto together = [] { asm volatile("bar.sync 1, %0;" ::"n"(32 * FOR_LAYERS) : "memory"); };
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t, n = n_first + t;
        const bool given = t == 0 || now <= row.draws;
        const int known = n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + n] : last;
        const float* h = a.h + (2 * number + (now & 1)) * half;
        float* h_next = a.h + (2 * number + (~now & 1)) * half;
        wait(p, begun + t);
        if (number < top) wait(places[number + 1], begun + t - 1);
        together();
#pragma unroll 1
        for (int first = own.first; first < own.end; first += FOR_LAYERS) {
            const int item = first + warp, tile = item % (int)p.tiles, group = item / (int)p.tiles * TOGETHER;
            const bool mine = item < own.end && 8 * tile < a.windows;
            const int window = 8 * tile + l, at = min(window, a.windows - 1), u = 4 * group + lane / 8;
            float sums[TOGETHER][8][4] = {};
            float state[TOGETHER];
            if (mine)
#pragma unroll
                for (int g = 0; g < TOGETHER; ++g) {
#if CELL == GRU || CELL == RNN
                    state[g] = at == begins ? first_h[u + 4 * g] : __ldcg(h + (i64)at * H + u + 4 * g);
#else
                    state[g] = at == begins ? a.weights[p.first_c + u + 4 * g] : a.c[number * half + (i64)at * H + u + 4 * g];
#endif
                }
#pragma unroll 1
            for (int below = 0; below <= (number > 0); ++below) {
                if (below && first == own.first) {
                    wait(places[number - 1], begun + t + 1);
                    together();
                }
                if (!mine) continue;
                const float4* from[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int other = min(8 * tile + 4 * i + lane / 8, a.windows - 1);
                    const float* start = below ? h_next - 2 * half : h;
                    from[i] = (const float4*)(other == begins && !below ? first_h : start + (i64)other * H) + l;
                }
                const int offset = below * parts * 128 + lane;
                if (p.resident >= 0) add_through_ring(sums, pool + (group - own.group) * size + offset, size, from, parts, lane, ring);
                else add_through_ring(sums, (const float4*)(a.weights + p.weights) + (i64)group * size + offset, size, from, parts, lane, ring);
            }
            if (!mine) continue;
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) met(sums[g], lane);
            const int id = number ? 0 : given ? known : asked(told, now);  // needed only here
#pragma unroll
            for (int g = 0; g < TOGETHER; ++g) {
                const int unit = u + 4 * g;
                const float out = next(inputs[(i64)id * H + unit], four(sums[g][0]), state[g], peepholes_of(a, p, unit));
                if (number == top && tile == oldest / 8) {  // a copy by each of the eight lanes
                    const float told_out = __shfl_sync(FULL, out, (lane & 24) | oldest % 8);
                    tell(a.line + l * copy_size(a) + (2 * number + (~now & 1)) * H + unit, told_out, (unsigned)now + 1);
                }
                if (window >= a.windows) continue;
                h_next[(i64)at * H + unit] = out;
#if CELL != GRU && CELL != RNN
                a.c[number * half + (i64)at * H + unit] = state[g];
#endif
            }
            __syncwarp();
        }
        arrive<FOR_LAYERS>(a.arrived, begun + t + 1);
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
    const int warp = threadIdx.x / 32;
    unsigned epoch = a.arrived[blockIdx.x];
    if (threadIdx.x == 0) {
        row = a.rows[0];
        last = a.last[0];
    }
    if (threadIdx.x < 4) told[threadIdx.x] = ~0ull;
    for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += 32 * ALONE_WARPS)
        ((i64*)places)[n] = ((const i64*)a.places)[n];
    __syncthreads();
    int number = a.layers + 1;  // the product that is this block's
    while (number >= 0 && (blockIdx.x < places[number].block || blockIdx.x >= places[number].block + places[number].blocks)) --number;
    const bool layers = number >= 0 && number < a.layers;
    if (number >= 0) settle_own(a, places[number]);
    __syncthreads();
    if (ROLLING) {
        // A block may draw before another, that has none of the windows that predict, has seen what was drawn last.
        meet<ALONE_WARPS>(a.arrived, epoch);
        if (!layers && threadIdx.x == 0) a.arrived[blockIdx.x] = epoch + a.steps;  // as far as the others will be
    }
    if (number < 0) return;
    if (!layers) {
        heading(a, places[number], number > a.layers);
    } else if (warp == CHOOSER) {
        if (a.chooses && number == 0) choosing(a, row, told);
    } else {
        if constexpr (ROLLING) rolling(a, places, number, row, last, told, epoch);
        else running_on(a, places[number], number, row, last, told);
    }
}

extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) one(const __grid_constant__ Arguments a) { alone<false>(a); }
extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) windows(const __grid_constant__ Arguments a) { alone<true>(a); }
