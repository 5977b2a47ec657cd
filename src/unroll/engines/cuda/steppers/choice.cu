// From logits to a token: one warp a stream, in float64; a lane has a stretch of neighbouring symbols. Follows steps.cu.

__device__ __forceinline__ double uniform(u64 seed, unsigned purpose, u64 place) {
    unsigned c0 = 0, c1 = (unsigned)place, c2 = purpose, c3 = (unsigned)(place >> 32);
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll 1
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0; c1 = (unsigned)p1;
        c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1; c3 = (unsigned)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return ((c0 >> 5) * 67108864.0 + (c1 >> 6)) / 9007199254740992.0;
}

__device__ __forceinline__ double total_of(double v) {
#pragma unroll
    for (int over = 16; over > 0; over /= 2) v += __shfl_xor_sync(FULL, v, over);
    return v;
}
// The sum up to and with this lane.
__device__ __forceinline__ double through(double v, int lane) {
#pragma unroll
    for (int over = 1; over < 32; over *= 2) {
        const double lower = __shfl_up_sync(FULL, v, over);
        if (lane >= over) v += lower;
    }
    return v;
}
__device__ __forceinline__ int count_of(int v) { return __reduce_add_sync(FULL, v); }

// A number whose order as an unsigned integer is the logit's; -0 and 0 are one.
__device__ __forceinline__ unsigned rank(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

template <int KEPT>
struct Symbols {  // what a lane knows of its symbols; KEPT of them at most, or any number, looked up when needed
    const float* logits;
    int first, end;
    float top, x[KEPT ? KEPT : 1];
    double temperature, e[KEPT ? KEPT : 1];

    __device__ __forceinline__ double shifted(float logit) const { return (double)logit - (double)top; }
    __device__ __forceinline__ double tempered(float logit) const {
        return temperature == 1.0 ? shifted(logit) : shifted(logit) / temperature;
    }
    __device__ __forceinline__ double weight(float logit, int i) const { return KEPT ? e[i] : exp(tempered(logit)); }
    // f(symbol, logit, place among the lane's)
    template <class F>
    __device__ __forceinline__ void each(F f) const {
        if constexpr (KEPT > 0) {
#pragma unroll
            for (int i = 0; i < KEPT; ++i)
                if (first + i < end) f(first + i, x[i], i);
        } else {
#pragma unroll 1
            for (int v = first; v < end; ++v) f(v, logits[v], 0);
        }
    }
    __device__ __forceinline__ double sum(unsigned at_least) const {
        double own = 0.0;
        each([&](int, float logit, int i) { own += rank(logit) >= at_least ? weight(logit, i) : 0.0; });
        return total_of(own);
    }
};

// Not inlined: however a stream is placed, the same instructions draw for it. A lane has `each` symbols, and
// brings their logits where it can keep them. The step and its symbol are written first of all, to `copies` places that lie
// `apart`. The likelihood is (logit, sum of e to the logit), both below the highest.
template <int KEPT>
__device__ __noinline__ int choose(const Row& row, const float* logits, float4 brought, int V, double aimed, double2* likelihood,
                                   volatile u64* told = nullptr, int copies = 0, int apart = 0, unsigned step = 0) {
    const int lane = threadIdx.x % 32, each = (V + 31) / 32;
    Symbols<KEPT> s;
    s.logits = logits; s.first = min(lane * each, V); s.end = min(s.first + each, V); s.temperature = row.temperature;
    if constexpr (KEPT > 0) { s.x[0] = brought.x; s.x[1] = brought.y; s.x[2] = brought.z; s.x[3] = brought.w; }
    s.top = __int_as_float(0xff800000);
    s.each([&](int, float logit, int) { s.top = fmaxf(s.top, logit); });
#pragma unroll
    for (int over = 16; over > 0; over /= 2) s.top = fmaxf(s.top, __shfl_xor_sync(FULL, s.top, over));
    double own = 0.0;
    if constexpr (KEPT > 0) {
#pragma unroll
        for (int i = 0; i < KEPT; ++i) s.e[i] = exp(s.shifted(s.x[i]));  // one of none is never looked at
    }
    s.each([&](int, float logit, int i) { own += KEPT ? s.e[i] : exp(s.shifted(logit)); });
    double up_to = through(own, lane);
    const double total = __shfl_sync(FULL, up_to, 31);
    int found = V - 1;
    if (row.temperature == 0.0) {
        s.each([&](int v, float logit, int) { if (logit == s.top) found = min(found, v); });
        found = __reduce_min_sync(FULL, found);
    } else {
        unsigned lowest = 0;                     // symbols of a lower rank are ruled out;
        int ties = 0x7fffffff, ties_before = 0;  // of those at this rank the first `ties` stay
        if (KEPT && row.temperature != 1.0) s.each([&](int, float logit, int i) { s.e[i] = exp(s.tempered(logit)); });
        if (row.top_k > 0) {
            const int k = (int)min(row.top_k, (i64)V);
#pragma unroll 1
            for (unsigned bit = 0x80000000u; bit; bit >>= 1) {
                int count = 0;
                s.each([&](int, float logit, int) { count += rank(logit) >= (lowest | bit); });
                if (count_of(count) >= k) lowest |= bit;
            }
        }
        if (row.top_p <= 1.0) {
            // The highest rank at which what is at least as likely reaches p: whatever is below has p before it.
            const double needed = row.top_p * s.sum(lowest);
            unsigned reached = 0;
#pragma unroll 1
            for (unsigned bit = 0x80000000u; bit; bit >>= 1)
                if (s.sum(max(reached | bit, lowest)) >= needed) reached |= bit;
            lowest = max(lowest, reached);
            int here = 0;
            double weight = 0.0;
            s.each([&](int, float logit, int i) {
                if (rank(logit) == lowest) { ++here; weight = s.weight(logit, i); }
            });
            ties_before = here;
#pragma unroll
            for (int over = 1; over < 32; over *= 2) {
                const int lower = __shfl_up_sync(FULL, ties_before, over);
                if (lane >= over) ties_before += lower;
            }
            ties_before -= here;
            const double above = lowest == 0xffffffffu ? 0.0 : s.sum(lowest + 1);
            const unsigned having = __ballot_sync(FULL, here > 0);
            weight = __shfl_sync(FULL, weight, having ? __ffs(having) - 1 : 0);
            if (weight > 0.0) ties = (int)fmin(2e9, fmax(1.0, ceil((needed - above) / weight)));
        }
        const bool truncates = row.top_k > 0 || row.top_p <= 1.0 || row.log_min_p > -1e300;
        int seen = ties_before;
        auto left = [&](float logit, int i) {  // a symbol's weight, 0 where it is ruled out
            if (!truncates) return s.weight(logit, i);
            const unsigned r = rank(logit);
            if (r < lowest || (r == lowest && seen++ >= ties)) return 0.0;
            if (row.log_min_p > -1e300 && s.tempered(logit) < row.log_min_p) return 0.0;
            return s.weight(logit, i);
        };
        if (truncates || row.temperature != 1.0) {
            own = 0.0;
            s.each([&](int, float logit, int i) { own += left(logit, i); });
            up_to = through(own, lane);
        }
        const double lower = __shfl_up_sync(FULL, up_to, 1);
        // Scaled by the last sum, and only symbols with a weight count, so that none of probability 0 is ever drawn.
        const double aim = aimed * __shfl_sync(FULL, up_to, 31);
        const unsigned beyond = __ballot_sync(FULL, own > 0.0 && up_to > aim), some = __ballot_sync(FULL, own > 0.0);
        const int winner = beyond ? __ffs(beyond) - 1 : some ? 31 - __clz(some) : 0;
        double reached = lane ? lower : 0.0;
        bool on = true;
        seen = ties_before;
        s.each([&](int v, float logit, int i) {
            const double weight = left(logit, i);
            if (on && weight > 0.0) {
                reached += weight;
                found = v;
                on = reached <= aim;
            }
        });
        found = __shfl_sync(FULL, found, winner);
    }
    if (lane < copies) told[lane * apart] = (u64)step << 32 | (unsigned)found;
    float own_logit = 0.0f;
    s.each([&](int v, float logit, int) { if (v == found) own_logit = logit; });
    *likelihood = make_double2(s.shifted(__shfl_sync(FULL, own_logit, found / each)), total);
    return found;
}

// From logits in memory.
__device__ __forceinline__ int chosen(const Arguments& a, const Row& row, int b, i64 now, double* logprob) {
    const float* logits = a.logits + (i64)b * a.padded_V;
    const int each = (a.V + 31) / 32, first = threadIdx.x % 32 * each;
    const double aimed = uniform(row.seed, a.purpose, now - row.draws);
    double2 likelihood;
    int id;
    if (a.V > 32 * HELD) {
        id = choose<0>(row, logits, make_float4(0, 0, 0, 0), a.V, aimed, &likelihood);
    } else {
        float x[HELD] = {};
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (i < each && first + i < a.V) x[i] = __ldcg(logits + first + i);
        id = choose<HELD>(row, logits, make_float4(x[0], x[1], x[2], x[3]), a.V, aimed, &likelihood);
    }
    *logprob = likelihood.x - log(likelihood.y);
    return id;
}
