// Many tokens of many streams in one launch: all blocks are on the GPU together, and meet after every phase of a token.
//
//   layers     h, c ← cell(x·W_x + b + h·W_h), bottom to top     all windows of all streams
//   dense      leaky ReLU(h·W + b)                               one row a stream from here on
//   out        logits
//   choose     a token, by `sampling/pick_token.py`'s rule
//
// A stream's bits depend on nothing but the stream. Every sum of products is added up in one order, whatever the number
// of rows and wherever the row stands: eight lanes take the terms 4·l … 4·l + 3 of every 32, from the first to the last,
// and their eight sums meet as (l, l xor 4), then xor 2, then xor 1. A warp does ROWS rows of 4 × 4 columns at once; how
// many rows it does changes which sums it does, never a sum.
//
// Weights stay in shared memory from the first token of a launch to the last where they fit; see `weights.py` for
// how they lie. Sizes are padded with zeros: hidden and dense to 32, the vocabulary to 16.
//
// `generate` does any number of streams. `one` and `windows` do one, whose time is what messages between the GPU's cores take: there,
// values travel each with the number of its step beside it, and every product has blocks of its own, so that nothing
// that a token waits for is kept waiting by what is only needed for the next. No block waits for all others, but those of
// `windows` once, at the end of a launch.
//
// One text in seven files, behind the cells' pointwise.cu: products (here), steps, halves, choice, many, messages, one; and on
// Hopper, windows.

typedef long long i64;
typedef unsigned long long u64;

#define RNN 4
#define WARPS 16
#define THREADS (32 * WARPS)
#define MOST_LAYERS 16
#define HELD 4       // symbols that a lane can keep in registers
#define RING 4       // parts of 8 rows that a warp has at hand or under way
#define SCRATCH 256  // float4 of shared memory a warp: its ring, or the row that it multiplies
#define COPIES 8  // of what everyone waits for, so that not everyone asks in one place
#define FULL 0xffffffffu

struct Row {  // one stream: when it begins and how it draws
    i64 begun;   // the step at which it reads its first token
    i64 draws;   // the step at which it first draws; until then it reads its prompt
    i64 prompt;  // where that begins
    u64 seed;
    double temperature, top_p, log_min_p;
    i64 top_k;
};

struct Place {  // where a product's parts lie among the weights, in floats
    i64 weights, bias, peepholes, first_h, first_c;
    i64 groups, parts;  // of 16 columns; of 32 terms
    i64 resident;       // where in shared memory, or -1
    // For a stream alone: the blocks that do this product and no other, and how many groups each of them does. For windows:
    // a block's tiles of rows, and how many of them it multiplies at once; its slots for chunks that come, and how many
    // chunks of one tile a slot holds.
    i64 block, blocks, each, tiles, at_once, slots, room;
    i64 table;   // where in shared memory is what each symbol means for a block's units, or -1
    i64 shared;  // bytes of shared memory in all of a block of windows
};

struct Arguments {
    const float* weights;
    const Place* places;  // the layers', then dense, then out
    const Row* rows;
    const int* prompts;
    int* last;       // [streams] what was drawn last
    float* h;        // [layers, 2, streams · windows, H], or as in halves.cu or windows.cu: steps read one half and write the other
    float* c;        // [layers, streams · windows, H]
    float* top;      // [streams, H] what the windows that predict have at the top, where h is halves
    float* dense;    // [streams, D]
    float* logits;   // [streams, padded V]
    i64* ids;        // [steps, streams] what is drawn
    double* logprobs;
    unsigned* arrived;  // [blocks]
    unsigned* reached;  // [layers, tiles of windows, SPREAD] how many blocks have done how many steps, in all
    u64* line;          // [COPIES, 2 · layers · H + D + 2 · padded V + TOLD] values, and the steps they are of, of one stream
    i64 now;
    int layers, streams, windows, rolling, H, D, V, padded_V;
    int steps, quiet, chooses;  // the first `quiet` of the steps draw nothing
    int halves;                 // whether layers multiply as halves.cu does, and h is as there
    int scratch;                // where in shared memory the warps' own begins, in floats
    float leak;
    unsigned purpose;
};

extern __shared__ float4 pool[];

// Waits until COMING warps of every block have come here; each then sees what the others wrote before.
template <int COMING>
__device__ __forceinline__ void meet(unsigned* arrived, unsigned& epoch) {
    ++epoch;
    asm volatile("bar.sync 1, %0;" ::"n"(32 * COMING) : "memory");
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(arrived + blockIdx.x), "r"(epoch) : "memory");
    for (int other = threadIdx.x; other < gridDim.x; other += 32 * COMING) {
        unsigned seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived + other) : "memory");
        while ((int)(seen - epoch) < 0);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(32 * COMING) : "memory");
}

// A lane's four terms of a row, and its columns: sums[q] += x·w_q, from the first term to the last. ACROSS: v[n] has what the n-th
// term means for all columns, else what all terms mean for the n-th column. A layer's weights lie ACROSS: then a sum always meets
// the same place of a vector, and the compiler can keep the two in different banks of registers; where it cannot, half of
// all multiplications wait a cycle for their operands.
template <bool ACROSS, int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[COLUMNS], const float4& x, const float4 (&v)[ACROSS ? 4 : COLUMNS]) {
    if constexpr (ACROSS) {
        const float terms[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            sums[0] = __fmaf_rn(terms[n], v[n].x, sums[0]);
            sums[1] = __fmaf_rn(terms[n], v[n].y, sums[1]);
            sums[2] = __fmaf_rn(terms[n], v[n].z, sums[2]);
            sums[3] = __fmaf_rn(terms[n], v[n].w, sums[3]);
        }
    } else {
#pragma unroll
        for (int q = 0; q < COLUMNS; ++q) {
            float s = sums[q];
            s = __fmaf_rn(x.x, v[q].x, s);
            s = __fmaf_rn(x.y, v[q].y, s);
            s = __fmaf_rn(x.z, v[q].z, s);
            sums[q] = __fmaf_rn(x.w, v[q].w, s);
        }
    }
}

// sums[r][q] += row r · column q of the lane's four, over the lane's share of PARTS parts; all their loads come first.
template <bool ACROSS, int ROWS, int PARTS>
__device__ __forceinline__ void add_parts(float (&sums)[ROWS][4], const float4* w, const float4* const (&rows)[ROWS], int part) {
    float4 x[PARTS][ROWS];
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) x[p][r] = __ldcg(rows[r] + 8 * (part + p));
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        float4 v[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) v[n] = w[((part + p) * 4 + n) * 32];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) multiply<ACROSS>(sums[r], x[p][r], v);
    }
}

// Eight rows come through shared memory, several parts ahead; lane 8·g + l brings a piece of rows g and 4 + g.
template <bool ACROSS>
__device__ __forceinline__ void add_through_ring(float (&sums)[8][4], const float4* w, const float4* const (&rows)[2],
                                                 int parts, int lane, float4* ring) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(ring + lane);
    auto bring = [&](int part) {
        if (part < parts)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + ((part % RING) * 64 + 32 * i) * 16),
                             "l"(rows[i] + 8 * part) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    __syncwarp();
#pragma unroll
    for (int part = 0; part < RING - 1; ++part) bring(part);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
        asm volatile("cp.async.wait_group %0;" ::"n"(RING - 2) : "memory");
        __syncwarp();
        bring(part + RING - 1);
        const float4* x = ring + (part % RING) * 64 + lane % 8;
        float4 v[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) v[n] = w[(part * 4 + n) * 32];
#pragma unroll
        for (int r = 0; r < 8; ++r) multiply<ACROSS>(sums[r], x[8 * r], v);
    }
}

#define SOURCES(rows) ((rows) == 8 ? 2 : (rows))  // rows of which a lane loads pieces itself

// Which row the i-th of those is.
template <int ROWS>
__device__ __forceinline__ int source(int i, int lane) { return ROWS == 8 ? 4 * i + lane / 8 : i; }

// In batches of parts as large as registers allow, and what is left part by part: from the first to the last in any case.
template <bool ACROSS, int ROWS>
__device__ __forceinline__ void add_products(float (&sums)[ROWS][4], const float4* w, const float4* const (&rows)[SOURCES(ROWS)],
                                             int parts, int lane, float4* ring) {
    int part = 0;
    w += lane;
    if constexpr (ROWS == 8) {
        add_through_ring<ACROSS>(sums, w, rows, parts, lane, ring);
    } else {
#pragma unroll 1
        for (; part + 16 / ROWS <= parts; part += 16 / ROWS) add_parts<ACROSS, ROWS, 16 / ROWS>(sums, w, rows, part);
        if (ROWS == 1)
#pragma unroll 1
            for (; part + 4 <= parts; part += 4) add_parts<ACROSS, ROWS, 4>(sums, w, rows, part);
#pragma unroll 1
        for (; part < parts; ++part) add_parts<ACROSS, ROWS, 1>(sums, w, rows, part);
    }
}

// The eight lanes' sums become one: in lane l the first row is then row l mod ROWS.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void met(float (&sums)[ROWS][COLUMNS], int lane) {
    int left = ROWS;
#pragma unroll
    for (int over = 4; over > 0; over /= 2) {
        const bool upper = lane & over;
        if (left == 2 * over) {  // each of two lanes goes on with half of the rows
            left = over;
#pragma unroll
            for (int r = 0; r < ROWS / 2; ++r)
                if (r < left)
#pragma unroll
                    for (int q = 0; q < COLUMNS; ++q) {
                        const float low = sums[r][q], high = sums[(r + over) % ROWS][q];
                        sums[r][q] = (upper ? high : low) + __shfl_xor_sync(FULL, upper ? low : high, over);
                    }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int q = 0; q < COLUMNS; ++q) sums[r][q] += __shfl_xor_sync(FULL, sums[r][q], over);
        }
    }
}

__device__ __forceinline__ float4 four(const float (&v)[4]) { return make_float4(v[0], v[1], v[2], v[3]); }
