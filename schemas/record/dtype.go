package record

import "strings"

// dtypes are the element types by code (FORMAT.md 2.3): part of the ring format.
var dtypes = [...]struct {
	name string
	size int
}{
	{"", 0}, {"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8},
	{"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8},
	{"fp16", 2}, {"fp32", 4}, {"fp64", 8}, {"bf16", 2}, {"bool", 1}, {"fp8", 1},
	{"complex64", 8}, {"complex128", 16},
}

// dtypeCount is one more than the largest dtype code.
const dtypeCount = uint8(len(dtypes))

// DtypeName returns the name of a dtype code, "" for 0 and for unknown codes.
func DtypeName(code uint8) string {
	if code < dtypeCount {
		return dtypes[code].name
	}

	return ""
}

// DtypeCode returns the code of a dtype in any spelling that BaseDtype knows,
// 0 for others.
func DtypeCode(name string) uint8 {
	if c := dtypeCode(name); c != 0 || name == "" {
		return c
	}

	w := strings.ToLower(name)
	for _, prefix := range [...]string{"torch.", "mindspore.", "hccl_data_type_", "hccl", "nccl"} {
		w = strings.TrimPrefix(w, prefix)
	}

	return dtypeCode(w)
}

// dtypeCode knows our names and those of torch, numpy, MindSpore, NCCL and HCCL.
func dtypeCode(w string) uint8 {
	switch w {
	case "int8", "char", "i8":
		return 1
	case "int16", "short", "i16":
		return 2
	case "int32", "int", "i32":
		return 3
	case "int64", "long", "i64":
		return 4
	case "uint8", "byte", "u8":
		return 5
	case "uint16", "u16":
		return 6
	case "uint32", "u32":
		return 7
	case "uint64", "u64":
		return 8
	case "fp16", "float16", "half", "f16":
		return 9
	case "fp32", "float32", "float", "f32":
		return 10
	case "fp64", "float64", "double", "f64":
		return 11
	case "bf16", "bfloat16", "bfp16":
		return 12
	case "bool":
		return 13
	case "fp8", "float8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
		"float8e4m3", "float8e5m2", "fp8_e4m3", "fp8_e5m2", "fp8e4m3", "fp8e5m2", "hif8", "hifloat8":
		return 14
	case "complex64", "cfloat":
		return 15
	case "complex128", "cdouble":
		return 16
	}

	return 0
}

// BaseDtype returns our name of a dtype as torch, MindSpore, NCCL, HCCL or TaskD
// spell it: "torch.float32" gives "fp32", "bfp16" gives "bf16". An unknown one
// stays as it is, in lower case; "na" is "".
func BaseDtype(raw string) string {
	if c := DtypeCode(raw); c != 0 {
		return dtypes[c].name
	}

	if w := strings.ToLower(raw); w != "na" {
		return w
	}

	return ""
}

// DtypeSize returns the bytes of one element of a dtype in any spelling that
// BaseDtype knows, 0 for others.
func DtypeSize(name string) int { return dtypes[DtypeCode(name)].size }
