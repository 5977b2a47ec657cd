// Any number of streams: all blocks do one phase after the other, and meet in between. Follows choice.cu.

// What of the weights stays in shared memory is brought there.
__device__ __forceinline__ void settle(const Arguments& a, const Place* places) {
#pragma unroll 1
    for (int number = 0; number < a.layers + 2; ++number) {
        const Place& p = places[number];
        if (p.resident < 0) continue;
        const int size = p.parts * 128;
#pragma unroll 1
        for (int j = 0; j * (int)gridDim.x < p.groups; ++j) {
            const int group = (blockIdx.x + j * gridDim.x) % p.groups;
            const float4* from = (const float4*)(a.weights + p.weights) + (i64)group * size;
            for (int n = threadIdx.x; n < size; n += THREADS) pool[p.resident / 4 + j * size + n] = from[n];
        }
    }
}

// Where there are more blocks than groups of columns, several share a group's tiles.
__device__ __forceinline__ int splits_of(int groups, int tiles) { return max(1, min((int)gridDim.x / groups, tiles)); }

// The block's groups of columns, and for each the warp's tiles of rows.
template <class Tile>
__device__ __forceinline__ void over(const Arguments& a, const Place& p, int tiles, Tile tile) {
    const int groups = p.groups, splits = splits_of(groups, tiles), warp = threadIdx.x / 32;
    const i64 size = p.parts * 128;
#pragma unroll 1
    for (int j = 0, item = blockIdx.x; item < groups * splits; ++j, item += gridDim.x) {
        const int group = item % groups;
#pragma unroll 1
        for (int t = item / groups + splits * warp; t < tiles; t += splits * WARPS) {
            if (p.resident >= 0) tile(pool + p.resident / 4 + j * size, group, t);
            else tile((const float4*)(a.weights + p.weights) + group * size, group, t);
        }
    }
}

template <int ROWS>
__device__ __noinline__ void layer_phase(const Step& s, const Place& p, int number) {
    const int tiles = (s.a.streams * s.a.windows + ROWS - 1) / ROWS;
    over(s.a, p, tiles, [&](const float4* w, int group, int tile) { layer<ROWS>(s, p, number, w, group, tile); });
}

template <int TILES>
__device__ __noinline__ void phase_of_halves(const Step& s, const Place& p, int number) {
    const int tiles = (s.a.streams * s.a.windows + 8 * TILES - 1) / (8 * TILES);
    over(s.a, p, tiles, [&](const float4* w, int group, int tile) { layer_of_halves<TILES>(s, p, number, w, group, tile); });
}

template <int ROWS>
__device__ __noinline__ void head_phase(const Step& s, const Place& p, bool last) {
    const int tiles = (s.a.streams + ROWS - 1) / ROWS;
    over(s.a, p, tiles, [&](const float4* w, int group, int tile) { head<ROWS>(s, p, last, w, group, tile); });
}

// Few rows are spread over warps, many share the weights that a warp has at hand.
#define BY_ROWS(count, phase, ...)           \
    if ((count) <= 1) phase<1>(__VA_ARGS__);  \
    else if ((count) <= 8) phase<2>(__VA_ARGS__);  \
    else if ((count) <= 16) phase<4>(__VA_ARGS__); \
    else phase<8>(__VA_ARGS__)

extern "C" __global__ void __launch_bounds__(THREADS, 1) generate(const Arguments given) {
    __shared__ Arguments a;  // at hand for every function; a parameter would be fetched anew after each meeting
    __shared__ Place places[MOST_LAYERS + 2];
    __shared__ Row few_rows[WARPS];
    __shared__ int few_ids[WARPS], few_drawn[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) a = given;
    __syncthreads();
    const bool few = a.streams <= WARPS;
    unsigned epoch = a.arrived[blockIdx.x];
    for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += THREADS)
        ((i64*)places)[n] = ((const i64*)a.places)[n];
    if (few) {
        for (int n = threadIdx.x; n < a.streams * (int)(sizeof(Row) / 8); n += THREADS)
            ((i64*)few_rows)[n] = ((const i64*)a.rows)[n];
        if (threadIdx.x < a.streams) few_drawn[threadIdx.x] = a.last[threadIdx.x];
    }
    __syncthreads();
    settle(a, places);
    const Row* rows = few ? few_rows : a.rows;
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const Step s = {a, rows, few ? few_ids : nullptr, a.now + t};
        if (few && threadIdx.x < a.streams) {
            const Row& row = few_rows[threadIdx.x];
            const i64 n = s.now - row.begun;
            few_ids[threadIdx.x] = s.now > row.draws ? few_drawn[threadIdx.x] : n < 0 ? 0 : a.prompts[row.prompt + n];
        }
        __syncthreads();
#pragma unroll 1
        for (int number = 0; number < a.layers; ++number) {
            const int rows = a.streams * a.windows;
            if (!a.halves) { BY_ROWS(rows, layer_phase, s, places[number], number); }
            else if (rows <= 8 * WARPS) phase_of_halves<1>(s, places[number], number);
            else phase_of_halves<2>(s, places[number], number);
            meet<WARPS>(a.arrived, epoch);
        }
        if (t < a.quiet) continue;
#pragma unroll 1
        for (int last = 0; last < 2; ++last) {
            BY_ROWS(a.streams, head_phase, s, places[a.layers + last], last);
            meet<WARPS>(a.arrived, epoch);
        }
        if (!a.chooses) continue;
        // Few streams are chosen for by every block alike, which spares a meeting.
#pragma unroll 1
        for (int b = few ? warp : blockIdx.x * WARPS + warp; b < a.streams; b += few ? WARPS : gridDim.x * WARPS) {
            if (s.now < rows[b].draws) continue;
            double logprob;
            const int id = chosen(a, rows[b], b, s.now, &logprob);
            if (lane) continue;
            if (few) few_drawn[b] = id;
            if (!few || blockIdx.x == 0) {
                a.last[b] = id;
                a.ids[(i64)t * a.streams + b] = id;
                a.logprobs[(i64)t * a.streams + b] = logprob;
            }
        }
        if (few) __syncthreads();
        else meet<WARPS>(a.arrived, epoch);
    }
}
