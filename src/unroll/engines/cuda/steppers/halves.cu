// A layer of windows, on the matrix units. Follows steps.cu.
//
// Windows are many rows, and float32 is what a matrix unit does not multiply. So weights and h are sums of two numbers of
// half precision, 22 bits together: x = high + low / 2048, where low is scaled so as to be as exact as high. Of the four
// products of halves three count, each of them exact, and are added up in float32: high·high in one sum; high·low and low·high,
// which weigh 1 / 2048, in another. What is left out is as small as what float32 rounds away.
//
// These sums have an order of their own, too, again whatever the number of rows and wherever a row stands: all chunks of 16 terms of a
// layer's own h, from the first to the last; then those of what is below, whose sum is added to the first.
//
// A unit of the matrices is 16 columns by 8 rows by 16 terms. Lane 4·g + t brings of every chunk the terms 4·t … 4·t + 3: of
// weights the columns g and g + 8, of h row g: 512 bytes side by side. `weights.py` says how they lie. It ends with those two columns of rows 2·t and
// 2·t + 1, which are two gates of a unit; the other two are in the lane whose g is odd where this one's is even.

#define LOW 2048.0f  // what low is times

__device__ __forceinline__ u32 split(float x) {
    unsigned short high, low;
    float back;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(x));
    asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(high));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"((x - back) * LOW));
    return high | (u32)low << 16;
}
__device__ __forceinline__ float joined(u32 halves) {
    float high, low;
    asm("cvt.f32.f16 %0, %1;" : "=f"(high) : "h"((unsigned short)halves));
    asm("cvt.f32.f16 %0, %1;" : "=f"(low) : "h"((unsigned short)(halves >> 16)));
    return fmaf(low, 1.0f / LOW, high);
}

// h lies in tiles of eight rows, and a tile as the matrix units take it: [chunks of 16 units, 8 rows, 4 · 4 units], of every four the
// high halves and then the low ones.
__device__ __forceinline__ float joined_at(const float* tile, int row, int unit) {
    const unsigned short* four = (const unsigned short*)(tile + (unit / 16 * 8 + row) * 16 + unit % 16 / 4 * 4) + unit % 4;
    return joined(__ldcg(four) | (u32)__ldcg(four + 4) << 16);
}
// Each lane has one unit of a group, of row row_of(lane), its neighbours in the lanes 8 and 16 further; one lane of four writes.
__device__ __forceinline__ int row_of(int lane) { return lane % 4 * 2 + lane / 4 % 2; }
__device__ __forceinline__ void put(float* tile, int group, u32 halves, int lane) {
    const u32 beside = __shfl_xor_sync(FULL, halves, 8);
    const u32 high = __byte_perm(halves, beside, 0x5410), low = __byte_perm(halves, beside, 0x7632);
    const u32 next_high = __shfl_xor_sync(FULL, high, 16), next_low = __shfl_xor_sync(FULL, low, 16);
    uint4* to = (uint4*)tile + (group / 4 * 8 + row_of(lane)) * 4 + group % 4;
    if (lane < 8) __stcg(to, make_uint4(high, next_high, low, next_low));
}

__device__ __forceinline__ void matrix_product(float (&sums)[4], const uint4& w, u32 x, u32 x_next) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(x), "r"(x_next));
}

template <int TILES>
struct Sums {
    float high[TILES][4] = {}, low[TILES][4] = {};
    // Adds the products of one chunk of a group's weights with that chunk of TILES tiles of rows.
    __device__ __forceinline__ void add(const uint4& w_high, const uint4& w_low, const uint4 (&x)[TILES]) {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            matrix_product(high[i], w_high, x[i].x, x[i].y);
            matrix_product(low[i], w_high, x[i].z, x[i].w);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i) matrix_product(low[i], w_low, x[i].x, x[i].y);
    }
    __device__ __forceinline__ float at(int i, int n) const { return fmaf(low[i][n], 1.0f / LOW, high[i][n]); }
};

// A lane's part of what came out, and the other lane's: all gates of unit lane / 8, of row row_of(lane).
__device__ __forceinline__ float4 gates_of(const float4& v, int lane) {
    const bool odd = lane & 4;
    const float first = __shfl_xor_sync(FULL, odd ? v.x : v.y, 4), second = __shfl_xor_sync(FULL, odd ? v.z : v.w, 4);
    return odd ? make_float4(first, v.y, second, v.w) : make_float4(v.x, first, v.z, second);
}

// The same as `layer`, for TILES tiles of eight rows.
template <int TILES>
__device__ __forceinline__ void layer_of_halves(const Step& s, const Place& p, int number, const float4* weights, int group, int first_tile) {
    const Arguments& a = s.a;
    const int lane = threadIdx.x % 32, total = a.streams * a.windows, H = a.H, chunks = H / 16, u = 4 * group + lane / 8;
    const int all_tiles = (total + 7) / 8;
    const i64 half = (i64)all_tiles * 8 * H;
    const float* h = a.h + (2 * number + (s.now & 1)) * half;
    float* h_next = a.h + (2 * number + (~s.now & 1)) * half;
    const uint4* w = (const uint4*)weights + lane;
    auto begins = [&](int row) {
        const i64 n = s.now - s.rows[row / a.windows].begun;
        return a.rolling ? n >= 0 && n % a.windows == row % a.windows : n == 0;
    };
    const uint4* from[TILES];
    i64 at[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        const int tile = min(first_tile * TILES + i, all_tiles - 1);
        at[i] = (i64)tile * 8 * H;
        from[i] = (const uint4*)(begins(min(tile * 8 + lane / 4, total - 1)) ? a.weights + p.first_h : h + at[i]) + lane;
    }
    float sums[TILES][4] = {};
#pragma unroll 1
    for (int below = 0; below <= (number > 0); ++below) {
        if (below) {
#pragma unroll
            for (int i = 0; i < TILES; ++i) from[i] = (const uint4*)(h_next - 2 * half + at[i]) + lane;
            w += 64 * chunks;
        }
        Sums<TILES> own;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; chunk += 4) {
            uint4 x[4][TILES];
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
                for (int i = 0; i < TILES; ++i) x[n][i] = __ldcg(from[i] + 32 * min(chunk + n, chunks - 1));
#pragma unroll
            for (int n = 0; n < 4; ++n)
                if (chunk + n < chunks) own.add(w[64 * (chunk + n)], w[64 * (chunk + n) + 32], x[n]);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int n = 0; n < 4; ++n) sums[i][n] += own.at(i, n);
    }
    const Peepholes peepholes = peepholes_of(a, p, u);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        if (first_tile * TILES + i >= all_tiles) break;
        const float4 sum = gates_of(four(sums[i]), lane);
        const int row = (first_tile * TILES + i) * 8 + row_of(lane), known = min(row, total - 1), b = known / a.windows;
        const bool anew = begins(known);
        const i64 n = s.now - s.rows[b].begun, whole = n + 1 - a.windows;
#if CELL == GRU || CELL == RNN
        float state = joined_at(anew ? a.weights + p.first_h : h + at[i], row_of(lane), u);
#else
        float* c = a.c + ((i64)number * total + known) * H + u;
        float state = anew ? a.weights[p.first_c + u] : *c;
#endif
        const float4 x4 = ((const float4*)(a.weights + p.bias))[(number ? 0 : (i64)token(s, b, n) * H) + u];
        const float out = next(x4, sum, state, peepholes);
        put(h_next + at[i], group, split(out), lane);
        if (row >= total) continue;
        // What predicts is the oldest window, and before it is full, the first.
        if (number + 1 == a.layers && row - b * a.windows == (a.rolling && whole > 0 ? (int)(whole % a.windows) : 0)) a.top[(i64)b * H + u] = out;
#if CELL != GRU && CELL != RNN
        *c = state;
#endif
    }
}
