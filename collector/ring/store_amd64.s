#include "textflag.h"

// func storeWords(dst *byte, w *[8]uint64)
TEXT ·storeWords(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ 0(SI), AX
	MOVQ 8(SI), BX
	MOVQ 16(SI), CX
	MOVQ 24(SI), DX
	MOVQ 32(SI), R8
	MOVQ 40(SI), R9
	MOVQ 48(SI), R10
	MOVQ 56(SI), R11
	MOVL $0xFFFFFFFF, R12
	SHRQ $32, AX
	CRC32L AX, R12
	CRC32Q BX, R12
	CRC32Q CX, R12
	CRC32Q DX, R12
	CRC32Q R8, R12
	CRC32Q R9, R12
	CRC32Q R10, R12
	CRC32Q R11, R12
	NOTL R12
	MOVQ BX, 8(DI)
	MOVQ CX, 16(DI)
	MOVQ DX, 24(DI)
	MOVQ R8, 32(DI)
	MOVQ R9, 40(DI)
	MOVQ R10, 48(DI)
	MOVQ R11, 56(DI)
	SHLQ $32, AX
	ORQ R12, AX
	MOVQ AX, 0(DI) // checksum last
	RET

// func release64(p *uint64, v uint64, ahead *byte)
TEXT ·release64(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), DI
	MOVQ v+8(FP), AX
	MOVQ ahead+16(FP), SI
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0E // PREFETCHW (SI)
	MOVQ AX, 0(DI)
	RET

// func release32(p *uint32, v uint32)
TEXT ·release32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), DI
	MOVL v+8(FP), AX
	MOVL AX, 0(DI)
	RET
