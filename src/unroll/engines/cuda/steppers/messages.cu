// One stream: values travel between blocks with the number of their step. Follows many.cu.
//
// Nothing is overwritten that somebody may still read. A step's tokens need all of its logits, these all of dense, that
// all of h, and h needs the token before: a block that writes the values of a step has seen that all are done with those of
// two steps ago, and with dense of the last. So h and logits have two places each, and dense has one. Tokens have many, since
// windows that do not predict yet may be behind. While tokens are given, and nothing is predicted, a layer
// waits for the one above instead.
//
// A stream that runs on is chosen for in every block of its first layer, which spares a message, but in no other, since for
// those nobody would wait. For windows there is one chooser, since it would hold up the products of the block it runs in.

#define ALONE_WARPS 8  // so that each may have 255 registers: where there are fewer, sums and weights share a bank
#define TOLD 64  // tokens, of which a stream that runs on needs four
#define CHOOSER (ALONE_WARPS - 1)  // in a block that has one

// A value and its step are written and read as one; a reader looks until the step is the right one.
__device__ __forceinline__ void tell(u64* line, float value, unsigned step) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(line), "r"(__float_as_uint(value)), "r"(step) : "memory");
}
__device__ __forceinline__ void tell(u64* line, float value, float next, unsigned step) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(line), "r"(__float_as_uint(value)), "r"(__float_as_uint(next)), "r"(step) : "memory");
}

__device__ __forceinline__ int copy_size(const Arguments& a) { return 2 * a.layers * a.H + a.D + 2 * a.padded_V + TOLD; }
__device__ __forceinline__ const u64* nearest_copy(const Arguments& a) { return a.line + blockIdx.x % COPIES * copy_size(a); }

// What was drawn for a step.
__device__ __forceinline__ int asked(const volatile u64* told, i64 now) {
    u64 v;
    do v = told[now % TOLD];
    while ((unsigned)(v >> 32) != (unsigned)now);
    return (int)(unsigned)v;
}

__device__ __forceinline__ uint4 look(const u64* line) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(line) : "memory");
    return v;
}

// Brings `count` values of a step to the warp's own shared memory. A lane asks for PAIRS pairs at once, and again only for
// those that have not come: to ask for all of them again and again would keep everybody's messages waiting.
template <int PAIRS>
__device__ __forceinline__ void hear(float4* to, const u64* line, int count, unsigned step, int lane) {
    __syncwarp();
    for (int start = 0; start < count; start += 64 * PAIRS) {
        uint4 v[PAIRS];
        unsigned missing = (1u << PAIRS) - 1;
        do {
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                const int k = start + 2 * (lane + 32 * i);
                if (k < count && missing >> i & 1) v[i] = look(line + k);
            }
#pragma unroll
            for (int i = 0; i < PAIRS; ++i)
                if (start + 2 * (lane + 32 * i) >= count || (v[i].y == step && v[i].w == step)) missing &= ~(1u << i);
        } while (missing);
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int k = start + 2 * (lane + 32 * i);
            if (k < count) ((float2*)to)[k / 2] = make_float2(__uint_as_float(v[i].x), __uint_as_float(v[i].z));
        }
    }
    __syncwarp();
}

__device__ __forceinline__ void recall(float4* to, const float* from, int count, int lane) {
    __syncwarp();
    for (int k = lane; k < count / 4; k += 32) to[k] = __ldcg((const float4*)from + k);
    __syncwarp();
}

// As add_products, of some of the lane's four columns, the row in shared memory. What comes next is fetched while this is
// multiplied.
template <bool ACROSS, int COLUMNS>
__device__ __forceinline__ void add_row(float (&sums)[1][COLUMNS], const float4* w, const float4* row, int parts, int lane) {
    w += lane;
    row += lane % 8;
    float4 x[2][2], v[2][2][ACROSS ? 4 : COLUMNS];
    auto bring = [&](int stage, int part) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int at = min(part + i, parts - 1);
            x[stage][i] = row[8 * at];
#pragma unroll
            for (int n = 0; n < (ACROSS ? 4 : COLUMNS); ++n) v[stage][i][n] = w[(at * 4 + n) * 32];
        }
    };
    const int whole = parts / 4 * 4;
    if (whole) bring(0, 0);
#pragma unroll 1
    for (int part = 0; part < whole; part += 4) {
        bring(1, part + 2);
        multiply<ACROSS>(sums[0], x[0][0], v[0][0]);
        multiply<ACROSS>(sums[0], x[0][1], v[0][1]);
        bring(0, part + 4);
        multiply<ACROSS>(sums[0], x[1][0], v[1][0]);
        multiply<ACROSS>(sums[0], x[1][1], v[1][1]);
    }
#pragma unroll 1
    for (int part = whole; part < parts; ++part) {
        bring(0, part);
        multiply<ACROSS>(sums[0], x[0][0], v[0][0]);
    }
}

// The groups of a product that this block does.
struct Items {
    int first, end;
    __device__ Items(const Place& p) {
        first = (blockIdx.x - p.block) * p.each;
        end = min((i64)first + p.each, p.groups);
    }
};

// Brings the weights of `groups` groups to shared memory.
__device__ __forceinline__ void settle_groups(const Arguments& a, const Place& p, int first, int groups) {
    const i64 size = p.parts * 128;
    const float4* from = (const float4*)(a.weights + p.weights) + first * size;
#pragma unroll 8
    for (int n = threadIdx.x; n < groups * size; n += blockDim.x) pool[n] = from[n];
}

// One row with columns of one group of the block's, from one of the lane's four and from one part of the terms on.
template <bool ACROSS, int COLUMNS>
__device__ __forceinline__ void add_group(float (&sums)[1][COLUMNS], const Arguments& a, const Place& p, const Items& own, int group,
                                          int column, int start, const float4* row, int parts, int lane) {
    const i64 size = p.parts * 128;
    const int offset = start * 128 + column * 32;
    if (p.resident >= 0) add_row<ACROSS>(sums, pool + (group - own.first) * size + offset, row, parts, lane);
    else add_row<ACROSS>(sums, (const float4*)(a.weights + p.weights) + group * size + offset, row, parts, lane);
}

// Draws for each step as soon as there are logits, and writes the symbol to `copies` places that lie `apart`; the block that
// `writes` keeps it.
__device__ __forceinline__ void choosing(const Arguments& a, const Row& row, bool writes, volatile u64* told, int copies, int apart) {
    const int lane = threadIdx.x % 32, each = (a.V + 31) / 32, first = lane * each;
    const u64* line = nearest_copy(a) + 2 * a.layers * a.H + a.D;
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = a.quiet; t < a.steps; ++t) {
        const i64 now = a.now + t;
        const double aimed = uniform(row.seed, a.purpose, now - row.draws);
        hear<HELD / 2>(scratch, line + (now & 1) * a.padded_V, a.padded_V, (unsigned)now + 1, lane);
        float x[HELD] = {};
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (i < each && first + i < a.V) x[i] = ((const float*)scratch)[first + i];
        double2 likelihood;
        const int id = choose<HELD>(row, nullptr, make_float4(x[0], x[1], x[2], x[3]), a.V, aimed, &likelihood,
                                    told + (now + 1) % TOLD, copies, apart, (unsigned)now + 1);
        if (lane || !writes) continue;
        a.last[0] = id;
        a.ids[t] = id;
        a.logprobs[t] = likelihood.x - log(likelihood.y);
    }
}

// dense, and the last: out; two warps a group of columns, since every token waits for them.
__device__ __forceinline__ void heading(const Arguments& a, const Place& p, bool last, int warps) {
    const int lane = threadIdx.x % 32, of_dense = 2 * a.layers * a.H;
    const Items own(p);
    const u64* line = nearest_copy(a);
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = a.quiet; t < a.steps; ++t) {
        const i64 now = a.now + t;
        const unsigned step = (unsigned)now + 1;
#pragma unroll 1
        for (int half = 2 * own.first + threadIdx.x / 32; half < 2 * own.end; half += warps) {
            const int group = half / 2, q = half % 2 * 2, column = 16 * group + 4 * (lane / 8) + q;
            const float2 bias = *(const float2*)(a.weights + p.bias + column);
            const int from = last ? of_dense : (2 * (a.layers - 1) + (~now & 1)) * a.H;
            hear<16>(scratch, line + from, last ? a.D : a.H, step, lane);
            float sums[1][2] = {};
            add_group<false>(sums, a, p, own, group, q, 0, scratch, p.parts, lane);
            met(sums, lane);
            float2 v = make_float2(sums[0][0] + bias.x, sums[0][1] + bias.y);
            u64* to = a.line + lane % 8 * copy_size(a) + of_dense + column;  // all eight lanes have it: a copy each
            if (last) {
                to += a.D + (now & 1) * a.padded_V;
                if (lane % 8 == 0) *(float2*)(a.logits + column) = v;
            } else {
                v = make_float2(leaky(v.x, a.leak), leaky(v.y, a.leak));
            }
            tell(to, v.x, v.y, step);
        }
    }
}
