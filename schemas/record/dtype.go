package record

import "strings"

// dtypes are the element types by code (FORMAT.md 2.3): part of the ring format.
var dtypes = [...]struct {
	name string
	size int
	also []string // how torch, numpy, MindSpore, NCCL and HCCL spell it
}{
	{"", 0, nil},
	{"int8", 1, []string{"char", "i8"}},
	{"int16", 2, []string{"short", "i16"}},
	{"int32", 4, []string{"int", "i32"}},
	{"int64", 8, []string{"long", "i64"}},
	{"uint8", 1, []string{"byte", "u8"}},
	{"uint16", 2, []string{"u16"}},
	{"uint32", 4, []string{"u32"}},
	{"uint64", 8, []string{"u64"}},
	{"fp16", 2, []string{"float16", "half", "f16"}},
	{"fp32", 4, []string{"float32", "float", "f32"}},
	{"fp64", 8, []string{"float64", "double", "f64"}},
	{"bf16", 2, []string{"bfloat16", "bfp16"}},
	{"bool", 1, nil},
	{"fp8", 1, []string{
		"float8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
		"float8e4m3", "float8e5m2", "fp8_e4m3", "fp8_e5m2", "fp8e4m3", "fp8e5m2", "hif8", "hifloat8",
	}},
	{"complex64", 8, []string{"cfloat"}},
	{"complex128", 16, []string{"cdouble"}},
}

// dtypeCodes are the codes by every spelling.
var dtypeCodes = func() map[string]uint8 {
	codes := map[string]uint8{}
	for code, d := range dtypes {
		for _, spelling := range append(d.also, d.name) {
			codes[spelling] = uint8(code)
		}
	}

	return codes
}()

// DtypeName returns the name of a dtype code, "" for 0 and for unknown codes.
func DtypeName(code uint8) string {
	if int(code) < len(dtypes) {
		return dtypes[code].name
	}

	return ""
}

// DtypeCode returns the code of a dtype in any spelling that BaseDtype knows,
// 0 for others.
func DtypeCode(name string) uint8 {
	if c, ok := dtypeCodes[name]; ok {
		return c
	}

	w := strings.ToLower(name)
	for _, prefix := range [...]string{"torch.", "mindspore.", "hccl_data_type_", "hccl", "nccl"} {
		w = strings.TrimPrefix(w, prefix)
	}

	return dtypeCodes[w]
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
