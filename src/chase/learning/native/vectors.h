/* Eight floats at a time, by the compiler's vector types. Included once for each instruction set. */

typedef float NAME(floats) __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t NAME(ints) __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint8_t NAME(octets) __attribute__((vector_size(8), aligned(1), may_alias));
#define V NAME(floats)
#define I NAME(ints)
#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline)) TARGET

/* a where the mask is set, else b */
#define PICK(mask, a, b) ((V)(((mask) & (I)(a)) | (~(mask) & (I)(b))))

INLINE V NAME(all)(float x) { return (V){x, x, x, x, x, x, x, x}; }

INLINE float NAME(total)(V v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* eight bits from bit `at` on, the highest of a byte first, as masks */
INLINE I NAME(bits)(const uint8_t *bytes, int64_t at) {
    const I one = {128, 64, 32, 16, 8, 4, 2, 1};
    const uint8_t *p = bytes + (at >> 3);
    int word = ((p[0] << 8 | p[1]) >> (8 - (at & 7))) & 255;
    I all = {word, word, word, word, word, word, word, word};
    return (all & one) != 0;
}
