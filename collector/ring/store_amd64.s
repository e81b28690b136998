#include "go_asm.h"
#include "textflag.h"

// CRC adds the words from SI + 16 on to the checksum AX and stores them from R8 + 16 on.
#define STORE(at) MOVQ at(SI), DX; CRC32Q DX, AX; MOVQ DX, at(R8)
#define STORE_WORDS STORE(16); STORE(24); STORE(32); STORE(40); STORE(48); STORE(56); NOTL AX

// PUBLISH writes the words at SI into the next slot of the lane at DI of the ring file
// at R9, the checksum last, then the head, and counts. A kill at any instruction
// leaves the whole record below the head or nothing of it.
#define PUBLISH \
	MOVQ lane_head(DI), R10; \
	MOVQ lane_mask(DI), R11; \
	LEAQ const_ahead(R10), R12; \
	MOVQ R10, R8; \
	ANDQ R11, R8; \
	ANDQ R11, R12; \
	SHLQ $6, R8; \
	SHLQ $6, R12; \
	ADDQ lane_slots(DI), R8; \
	ADDQ lane_slots(DI), R12; \
	MOVL 4(SI), BX; \
	MOVL $0xFFFFFFFF, AX; \
	CRC32L BX, AX; \
	MOVL R10, DX; \
	ORQ 8(SI), DX; \
	CRC32Q DX, AX; \
	MOVQ DX, 8(R8); \
	STORE_WORDS; \
	MOVQ BX, CX; \
	SHLQ $32, CX; \
	ORQ AX, CX; \
	MOVQ CX, 0(R8); \
	INCQ R10; \
	MOVQ lane_headp(DI), R11; \
	MOVQ R10, lane_head(DI); \
	MOVQ R10, 0(R11); \
	PREFETCHW(R12); \
	ANDL $(const_kindCounters-1), BX; \
	INCQ const_rEmitted(R9)(BX*8)

#define PREFETCHW(R) BYTE $0x41; BYTE $0x0F; BYTE $0x0D; BYTE $0x0C; BYTE $0x24 // PREFETCHW (R12)

// func publishSlot(l *lane, s *Slot, mem *byte)
TEXT ·publishSlot(SB), NOSPLIT, $0-24
	MOVQ l+0(FP), DI
	MOVQ s+8(FP), SI
	MOVQ mem+16(FP), R9
	PUBLISH
	RET

// func openSlot(slot *byte, s *Slot)
TEXT ·openSlot(SB), NOSPLIT, $0-16
	MOVQ slot+0(FP), R8
	MOVQ s+8(FP), SI
	MOVL 4(SI), BX
	MOVL $0xFFFFFFFF, AX
	CRC32L BX, AX
	MOVQ 8(SI), DX
	CRC32Q DX, AX
	MOVQ DX, 8(R8)
	STORE_WORDS
	ORL $(const_stateOpen<<24), BX // not in the checksum
	SHLQ $32, BX
	ORQ AX, BX
	MOVQ BX, 0(R8)
	RET

// func endSlot(l *lane, s *Slot, mem, slot *byte)
TEXT ·endSlot(SB), NOSPLIT, $0-32
	MOVQ l+0(FP), DI
	MOVQ s+8(FP), SI
	MOVQ mem+16(FP), R9
	MOVQ slot+24(FP), R13
	MOVL lane_head(DI), AX
	ANDL $0x7FFFFFFF, AX
	ORL lane_mark(DI), AX
	MOVL AX, 8(R13)
	MOVB $const_stateClosing, 7(R13)
	PUBLISH
	MOVB $const_stateFree, 7(R13)
	RET
