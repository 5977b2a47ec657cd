// A layer of a stream that runs on: a warp a group of columns. And who does what. Follows messages.cu.

__device__ __forceinline__ void running_on(const Arguments& a, const Place& p, int number, const Row& row, int last, const volatile u64* told) {
    const int lane = threadIdx.x % 32, l = lane % 8, H = a.H, parts = number ? p.parts / 2 : p.parts;
    const Items own(p);
    const u64* line = nearest_copy(a);
    const float* first_h = a.weights + p.first_h;
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t, n = now - row.begun;
        const bool given = t == 0 || now <= row.draws;
        const int known = n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + n] : last;
        const int half = (2 * number + (now & 1)) * H, half_next = (2 * number + (~now & 1)) * H;
#pragma unroll 1
        for (int group = own.first + threadIdx.x / 32; group < own.end; group += CHOOSER) {
            const int u = 4 * group + lane / 8;
            const Peepholes peepholes = peepholes_of(a, p, u);
#if CELL != GRU && CELL != RNN
            float* c = a.c + number * H + u;
            float state = n == 0 ? a.weights[p.first_c + u] : *c;
#endif
            // Where no token shows that the layer above has read what this step's h will overwrite.
            if (given && t >= 2 && number + 1 < a.layers) hear<16>(scratch, line + half_next + 2 * H, H, (unsigned)now - 1, lane);
            if (n == 0) recall(scratch, first_h, H, lane);
            else if (t == 0) recall(scratch, a.h + half, H, lane);
            else hear<16>(scratch, line + half, H, (unsigned)now, lane);
            float sums[1][4] = {};
            add_group<true>(sums, a, p, own, group, 0, 0, scratch, parts, lane);
#if CELL == GRU || CELL == RNN
            float state = ((const float*)scratch)[u];
#endif
            if (number) {
                hear<16>(scratch, line + half_next - 2 * H, H, (unsigned)now + 1, lane);
                add_group<true>(sums, a, p, own, group, 0, parts, scratch, parts, lane);
            }
            met(sums, lane);
            const int id = number ? 0 : given ? known : asked(told, now);  // needed only here
            const float4 x4 = ((const float4*)(a.weights + p.bias))[(i64)id * H + u];
            const float out = next(x4, four(sums[0]), state, peepholes);
            tell(a.line + l * copy_size(a) + half_next + u, out, (unsigned)now + 1);  // all eight lanes have it
            if (l == 0) {
                a.h[half_next + u] = out;
#if CELL != GRU && CELL != RNN
                *c = state;
#endif
            }
            __syncwarp();
        }
    }
}

// What a block of a stream alone begins with.
struct Opening {
    Place places[MOST_LAYERS + 2];
    Row row;
    int last;
    // The product that is this block's, or -1.
    __device__ __forceinline__ int number(const Arguments& a) {
        if (threadIdx.x == 0) {
            row = a.rows[0];
            last = a.last[0];
        }
        for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += blockDim.x)
            ((i64*)places)[n] = ((const i64*)a.places)[n];
        __syncthreads();
        int found = a.layers + 1;
        while (found >= 0 && (blockIdx.x < places[found].block || blockIdx.x >= places[found].block + places[found].blocks)) --found;
        return found;
    }
};

extern "C" __global__ void __launch_bounds__(32 * ALONE_WARPS, 1) one(const __grid_constant__ Arguments a) {
    __shared__ Opening open;
    __shared__ volatile u64 told[TOLD];
    if (threadIdx.x < TOLD) told[threadIdx.x] = ~0ull;
    const int number = open.number(a);
    if (number < 0) return;
    const Place& p = open.places[number];
    if (p.resident >= 0) {
        const Items own(p);
        settle_groups(a, p, own.first, own.end - own.first);
    }
    __syncthreads();
    if (number >= a.layers) {
        heading(a, p, number > a.layers, ALONE_WARPS);
    } else if (threadIdx.x / 32 == CHOOSER) {
        if (a.chooses && number == 0) choosing(a, open.row, blockIdx.x == 0, told, 1, 0);
    } else {
        running_on(a, p, number, open.row, open.last, told);
    }
}
