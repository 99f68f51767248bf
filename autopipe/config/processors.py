"""The processors of LLVM 22, by which `target.mcpu` is checked without TVM.

A test compares them with those of TVM's LLVM.
"""

from typing import Final

_NAMES: Final = """
    440 450 601 602 603 603e 603ev 604 604e 620 7400 7450 750 970 a2 a64fx alderlake amdfam10
    ampere1 ampere1a ampere1b ampere1c andes-45-series andes-a25 andes-a45 andes-ax25 andes-ax45
    andes-ax45mpv andes-n45 andes-nx45 apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15
    apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 arch10 arch11 arch12 arch13 arch14 arch15 arch8
    arch9 arm1020e arm1020t arm1022e arm10e arm10tdmi arm1136j-s arm1136jf-s arm1156t2-s
    arm1156t2f-s arm1176jz-s arm1176jzf-s arm710t arm720t arm7tdmi arm7tdmi-s arm8 arm810 arm9
    arm920 arm920t arm922t arm926ej-s arm940t arm946e-s arm966e-s arm968e-s arm9e arm9tdmi
    arrowlake arrowlake-s arrowlake_s athlon athlon-4 athlon-fx athlon-mp athlon-tbird athlon-xp
    athlon64 athlon64-sse3 atom atom_sse4_2 atom_sse4_2_movbe barcelona bdver1 bdver2 bdver3
    bdver4 bonnell broadwell btver1 btver2 c1-nano c1-premium c1-pro c1-ultra c3 c3-2 cannonlake
    carmel cascadelake clearwaterforest cooperlake core-avx-i core-avx2 core2 core_2_duo_sse4_1
    core_2_duo_ssse3 core_2nd_gen_avx core_3rd_gen_avx core_4th_gen_avx core_4th_gen_avx_tsx
    core_5th_gen_avx core_5th_gen_avx_tsx core_aes_pclmulqdq core_i7_sse4_2 corei7 corei7-avx
    cortex-a12 cortex-a15 cortex-a17 cortex-a32 cortex-a320 cortex-a34 cortex-a35 cortex-a5
    cortex-a510 cortex-a520 cortex-a520ae cortex-a53 cortex-a55 cortex-a57 cortex-a65 cortex-a65ae
    cortex-a7 cortex-a710 cortex-a715 cortex-a72 cortex-a720 cortex-a720ae cortex-a725 cortex-a73
    cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-a8
    cortex-a9 cortex-m0 cortex-m0plus cortex-m1 cortex-m23 cortex-m3 cortex-m33 cortex-m35p
    cortex-m4 cortex-m52 cortex-m55 cortex-m7 cortex-m85 cortex-r4 cortex-r4f cortex-r5 cortex-r52
    cortex-r52plus cortex-r7 cortex-r8 cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2
    cortex-x3 cortex-x4 cortex-x925 cyclone diamondrapids e500 e500mc e5500 emeraldrapids ep9312
    exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka future g3 g4 g4+ g5 gb10 generic
    generic-ooo generic-rv32 generic-rv64 geode goldmont goldmont-plus goldmont_plus grace
    gracemont grandridge graniterapids graniterapids-d graniterapids_d haswell i386 i486 i586 i686
    icelake-client icelake-server icelake_client icelake_server ivybridge iwmmxt k6 k6-2 k6-3 k8
    k8-sse3 knl knm krait kryo lakemont lunarlake meteorlake mic_avx512 mips-p8700 mpcore
    mpcorenovfp nehalem neoverse-512tvb neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3
    neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae nocona novalake olympus opteron opteron-sse3
    oryon-1 pantherlake penryn pentium pentium-m pentium-mmx pentium2 pentium3 pentium3m pentium4
    pentium4m pentium_4 pentium_4_sse3 pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m
    pentium_mmx pentium_pro pentiumpro ppc ppc32 ppc64 ppc64le prescott pwr10 pwr11 pwr3 pwr4 pwr5
    pwr5x pwr6 pwr6x pwr7 pwr8 pwr9 raptorlake rocket rocket-rv32 rocket-rv64 rocketlake
    rp2350-hazard3 sandybridge saphira sapphirerapids sc000 sc300 sierraforest sifive-7-series
    sifive-e20 sifive-e21 sifive-e24 sifive-e31 sifive-e34 sifive-e76 sifive-p450 sifive-p470
    sifive-p550 sifive-p670 sifive-p870 sifive-s21 sifive-s51 sifive-s54 sifive-s76 sifive-u54
    sifive-u74 sifive-x280 sifive-x390 silvermont skx skylake skylake-avx512 skylake_avx512 slm
    spacemit-x60 star-mc1 star-mc3 strongarm strongarm110 strongarm1100 strongarm1110 swift
    syntacore-scr1-base syntacore-scr1-max syntacore-scr3-rv32 syntacore-scr3-rv64
    syntacore-scr4-rv32 syntacore-scr4-rv64 syntacore-scr5-rv32 syntacore-scr5-rv64 syntacore-scr7
    thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tigerlake tremont
    tsv110 tt-ascalon-d8 veyron-v1 westmere wildcatlake winchip-c6 winchip2 x86-64 x86-64-v2
    x86-64-v3 x86-64-v4 xiangshan-kunminghu xiangshan-nanhu xscale yonah z10 z13 z14 z15 z16 z17
    z196 zEC12 znver1 znver2 znver3 znver4 znver5
"""

PROCESSORS: Final = frozenset(_NAMES.split())
"""LLVM's names of processors, for the architectures in `ARCHITECTURES`."""

ARCHITECTURES: Final = (
    "x86_64",
    "i686",
    "aarch64",
    "arm",
    "riscv",
    "s390x",
    "powerpc64",
)
"""Prefixes of triples with listed processors; those of others are not checked."""
