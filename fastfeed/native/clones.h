// One build for every x86-64: the compiler makes a version per instruction set and the loader picks one.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(FASTFEED_NO_CLONES)
#define FASTFEED_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
// variable shifts cost half with BMI2, which came with AVX2
#define FASTFEED_BIT_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define FASTFEED_CLONES
#define FASTFEED_BIT_CLONES
#endif
