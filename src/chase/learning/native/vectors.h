/* LANES floats at a time, by the compiler's vector types. Included once for each instruction set and number of lanes:
LANED(x) names what is there for both numbers. */

typedef float LANED(floats) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LANED(ints) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint8_t LANED(octets) __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE V LANED(all)(float x) { return x - (V){}; }

/* as many bits as lanes from bit `at` on, the highest of a byte first, as masks */
INLINE I LANED(bits)(const uint8_t *bytes, int64_t at) {
    const uint8_t *p = bytes + (at >> 3);
    uint32_t word = ((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8) << (at & 7);
    I one;
    _Pragma("GCC unroll 16")
    for (int i = 0; i < LANES; i++) one[i] = (int32_t)(1u << (31 - i));
    return (((I){} + (int32_t)word) & one) != 0;
}
