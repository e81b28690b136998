/* mspti_name.c: what a marker's name says. The rules are those of package
 * schemas/marker; a test holds the two to each other. */
#include "mspti_name.h"

#include <string.h>
#include <strings.h>

static int blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int null_name(const char *s) { return !*s || strcmp(s, "NULL") == 0 || strcmp(s, "(null)") == 0; }

/* natural reads a decimal number, -1 when s[0..n) is none that fits. */
static int64_t natural(const char *s, size_t n) {
	uint64_t v = 0;
	if (n == 0 || n > 19)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	return v <= INT64_MAX ? (int64_t)v : -1;
}

/* step_of returns the number in a step's name, -1 when it is none. */
static int64_t step_of(const char *s) {
	const char *at = s;
	int found = 0;
	for (; *at && !found; at++)
		found = strncasecmp(at, "step", 4) == 0;
	if (!found)
		return -1;
	while (blank(*s))
		s++;
	while (*s && !blank(*s))
		s++;
	while (blank(*s))
		s++;
	size_t n = 0;
	while (s[n] && !blank(s[n]))
		n++;
	return natural(s, n);
}

/* ---- JSON ---- */

typedef struct cursor {
	const char *at;
	int bad;
} cursor;

static void space(cursor *c) {
	while (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')
		c->at++;
}

static int skip(cursor *c, char ch) {
	if (*c->at != ch)
		return 0;
	c->at++;
	return 1;
}

static void expect(cursor *c, char ch) {
	if (!c->bad && !skip(c, ch))
		c->bad = 1;
}

static int hex4(const char *s) {
	int v = 0;
	for (int i = 0; i < 4; i++) {
		char c = s[i];
		int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

static size_t utf8(char *dst, uint32_t r) {
	if (r < 0x80) {
		dst[0] = (char)r;
		return 1;
	}
	if (r < 0x800) {
		dst[0] = (char)(0xC0 | r >> 6);
		dst[1] = (char)(0x80 | (r & 63));
		return 2;
	}
	if (r < 0x10000) {
		dst[0] = (char)(0xE0 | r >> 12);
		dst[1] = (char)(0x80 | (r >> 6 & 63));
		dst[2] = (char)(0x80 | (r & 63));
		return 3;
	}
	dst[0] = (char)(0xF0 | r >> 18);
	dst[1] = (char)(0x80 | (r >> 12 & 63));
	dst[2] = (char)(0x80 | (r >> 6 & 63));
	dst[3] = (char)(0x80 | (r & 63));
	return 4;
}

/* escape reads what follows a backslash and appends what it stands for. */
static void escape(cursor *c, char *dst, size_t *n) {
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char e = *c->at;
	const char *p = e ? strchr(from, e) : NULL;
	if (p) {
		c->at++;
		dst[(*n)++] = to[p - from];
		return;
	}
	int r = e == 'u' ? hex4(c->at + 1) : -1;
	if (r < 0) {
		c->bad = 1;
		return;
	}
	c->at += 5;
	uint32_t code = (uint32_t)r;
	if (code >= 0xD800 && code < 0xE000) {
		int low = code < 0xDC00 && c->at[0] == '\\' && c->at[1] == 'u' ? hex4(c->at + 2) : -1;
		if (low >= 0xDC00 && low < 0xE000) {
			c->at += 6;
			code = 0x10000 + ((code - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
		} else {
			code = 0xFFFD;
		}
	}
	if (code == 0)
		code = 0xFFFD; /* our strings end at a zero */
	*n += utf8(dst + *n, code);
}

/* string reads a string's content into dst, which has room for NAME_LIMIT: a name
 * is shorter, and nothing gets longer by reading an escape. */
static void string(cursor *c, char *dst) {
	size_t n = 0;
	expect(c, '"');
	while (!c->bad) {
		char ch = *c->at;
		if ((unsigned char)ch < 0x20) {
			c->bad = 1;
			break;
		}
		c->at++;
		if (ch == '"')
			break;
		if (ch == '\\')
			escape(c, dst, &n);
		else
			dst[n++] = ch;
	}
	dst[n] = 0;
}

static void number(cursor *c) {
	const char *s = c->at;
	skip(c, '-');
	if (!skip(c, '0'))
		while (*c->at >= '0' && *c->at <= '9')
			c->at++;
	if (c->at == s || c->at[-1] == '-')
		c->bad = 1;
	if (skip(c, '.')) {
		s = c->at;
		while (*c->at >= '0' && *c->at <= '9')
			c->at++;
		c->bad |= c->at == s;
	}
	if ((*c->at | 32) == 'e') {
		c->at++;
		if (!skip(c, '+'))
			skip(c, '-');
		s = c->at;
		while (*c->at >= '0' && *c->at <= '9')
			c->at++;
		c->bad |= c->at == s;
	}
}

static void literal(cursor *c, const char *word) {
	size_t n = strlen(word);
	if (strncmp(c->at, word, n) == 0)
		c->at += n;
	else
		c->bad = 1;
}

/* pass goes over a value of any kind. The stack of what is open is a word of bits:
 * names are too short for more. */
static void pass(cursor *c, char *scratch) {
	uint64_t objects = 0;
	int depth = 0;
	for (;;) {
		space(c);
		if (*c->at == '{' || *c->at == '[') {
			int object = *c->at++ == '{';
			if (++depth > 60) {
				c->bad = 1;
				return;
			}
			objects = objects << 1 | (uint64_t)object;
			space(c);
			if (skip(c, object ? '}' : ']')) {
				depth--;
				objects >>= 1;
			} else {
				if (object) {
					string(c, scratch);
					space(c);
					expect(c, ':');
				}
				if (c->bad)
					return;
				continue;
			}
		} else if (*c->at == '"') {
			string(c, scratch);
		} else if (*c->at == 't') {
			literal(c, "true");
		} else if (*c->at == 'f') {
			literal(c, "false");
		} else if (*c->at == 'n') {
			literal(c, "null");
		} else {
			number(c);
		}
		while (!c->bad && depth > 0) { /* after a value in an object or array */
			space(c);
			if (skip(c, ',')) {
				space(c);
				if (objects & 1) {
					string(c, scratch);
					space(c);
					expect(c, ':');
				}
				break;
			}
			expect(c, objects & 1 ? '}' : ']');
			depth--;
			objects >>= 1;
		}
		if (c->bad || depth == 0)
			return;
	}
}

enum { F_OP, F_GROUP, F_DTYPE, F_COUNT, F_SRC, F_DEST, F_STREAM, FIELDS };

typedef struct fields {
	char value[FIELDS][NAME_LIMIT];
	char key[NAME_LIMIT], scratch[NAME_LIMIT];
} fields;

static char *field(fields *f) {
	static const char *const names[FIELDS] = {"opName", "groupName", "dataType", "count", "srcRank", "destRank", "streamId"};
	for (int i = 0; i < FIELDS; i++)
		if (strcmp(f->key, names[i]) == 0)
			return f->value[i];
	return NULL;
}

/* read_object reads a JSON object; a value that is no string counts as its text. */
static int read_object(fields *f, const char *text) {
	cursor c = {text, 0};
	for (int i = 0; i < FIELDS; i++)
		f->value[i][0] = 0;
	space(&c);
	expect(&c, '{');
	space(&c);
	if (!c.bad && skip(&c, '}')) {
		space(&c);
		return !*c.at;
	}
	while (!c.bad) {
		space(&c);
		string(&c, f->key);
		space(&c);
		expect(&c, ':');
		space(&c);
		char *to = field(f);
		if (*c.at == '"') {
			string(&c, to ? to : f->scratch);
		} else if (!c.bad) {
			const char *from = c.at;
			pass(&c, f->scratch);
			size_t n = (size_t)(c.at - from);
			if (to && !c.bad) {
				if (n == 4 && memcmp(from, "null", 4) == 0)
					n = 0;
				memcpy(to, from, n);
				to[n] = 0;
			}
		}
		space(&c);
		if (!c.bad && skip(&c, '}')) {
			space(&c);
			return !c.bad && !*c.at;
		}
		expect(&c, ',');
	}
	return 0;
}

/* unescape takes one level of escapes away. The producers put it there for a
 * reader that pastes names into JSON as they are. */
static int unescape(char *dst, const char *s) {
	cursor c = {s, 0};
	size_t n = 0;
	while (*c.at && !c.bad) {
		char ch = *c.at++;
		if (ch == '\\')
			escape(&c, dst, &n);
		else
			dst[n++] = ch;
	}
	dst[n] = 0;
	return !c.bad;
}

/* ---- communication ---- */

static uint8_t dtype_code(const char *s) {
	static const struct {
		const char *name;
		uint8_t code;
	} known[] = {
		{"bfp16", LAGGARD_BF16}, {"bf16", LAGGARD_BF16}, {"bfloat16", LAGGARD_BF16}, {"fp32", LAGGARD_FP32},
		{"float32", LAGGARD_FP32}, {"float", LAGGARD_FP32}, {"fp16", LAGGARD_FP16}, {"float16", LAGGARD_FP16},
		{"half", LAGGARD_FP16}, {"fp64", LAGGARD_FP64}, {"float64", LAGGARD_FP64}, {"double", LAGGARD_FP64},
		{"int8", LAGGARD_INT8}, {"int16", LAGGARD_INT16}, {"int32", LAGGARD_INT32}, {"int64", LAGGARD_INT64},
		{"uint8", LAGGARD_UINT8}, {"uint16", LAGGARD_UINT16}, {"uint32", LAGGARD_UINT32}, {"uint64", LAGGARD_UINT64},
		{"bool", LAGGARD_BOOL}, {"fp8", LAGGARD_FP8}, {"complex64", LAGGARD_COMPLEX64}, {"complex128", LAGGARD_COMPLEX128},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcasecmp(s, known[i].name) == 0)
			return known[i].code;
	return 0;
}

static int holds(const char *s, const char *word) {
	size_t n = strlen(word);
	for (; *s; s++)
		if (strncasecmp(s, word, n) == 0)
			return 1;
	return 0;
}

/* peer_of: a receive waits for the source, everything else for the destination. */
static int32_t peer_of(const fields *f) {
	const char *op = f->value[F_OP], *s = f->value[F_DEST];
	int receives = (holds(op, "recv") || holds(op, "receive")) && !holds(op, "send");
	if ((receives && f->value[F_SRC][0]) || !*s)
		s = f->value[F_SRC];
	int64_t v = natural(s, strlen(s));
	return v >= 0 && v <= INT32_MAX ? (int32_t)v : -1;
}

static void communication(const char *name, mspti_what *w) {
	fields f; /* some 8 KiB; what is read of it is set first */
	char plain[NAME_LIMIT];
	const char *s = name;
	while (blank(*s))
		s++;
	if (*s == '{')
		for (s++; blank(*s);)
			s++;
	if (*s == '\\' && unescape(plain, name))
		name = plain;
	if (!read_object(&f, name)) {
		if (!null_name(name))
			strcpy(w->text, name);
		return;
	}
	strcpy(w->text, f.value[F_OP]);
	strcpy(w->group, f.value[F_GROUP]);
	w->dtype = dtype_code(f.value[F_DTYPE]);
	int64_t n = natural(f.value[F_COUNT], strlen(f.value[F_COUNT]));
	w->count = n > 0 ? n : 0;
	w->peer = peer_of(&f);
	n = natural(f.value[F_STREAM], strlen(f.value[F_STREAM]));
	w->stream = n > 0 && n <= UINT16_MAX ? (uint16_t)n : 0;
}

/* mspti_classify fills out with the kind that a name in a domain stands for. An
 * instant is no Step and no FP: those last. */
void mspti_classify(const char *name, const char *domain, int instant, mspti_what *w) {
	char cut[NAME_LIMIT];
	w->kind = LAGGARD_OTHER;
	w->dtype = 0;
	w->peer = -1;
	w->stream = 0;
	w->count = 0;
	w->step = -1;
	w->text[0] = w->group[0] = 0;
	if (!name)
		name = "";
	if (!domain)
		domain = "";
	size_t n = strnlen(name, NAME_LIMIT - 1);
	memcpy(cut, name, n);
	cut[n] = 0;
	if (strcmp(domain, "communication") == 0) {
		w->kind = LAGGARD_COMMUNICATION;
		communication(cut, w);
		return;
	}
	if (!instant) {
		if (strcasecmp(cut, "forward") == 0)
			w->kind = LAGGARD_FP;
		else if (strcasecmp(cut, "dataloader") == 0)
			w->kind = LAGGARD_DATA_LOADER;
		else if (strcasecmp(cut, "save_checkpoint") == 0)
			w->kind = LAGGARD_SAVE_CHECKPOINT;
		else if ((w->step = step_of(cut)) >= 0)
			w->kind = LAGGARD_STEP;
	}
	if (w->kind != LAGGARD_OTHER)
		return;
	strcpy(w->text, null_name(cut) ? "unnamed" : cut);
	if (!instant && strcmp(domain, "default") != 0 && !null_name(domain)) {
		n = strnlen(domain, NAME_LIMIT - 1);
		memcpy(w->group, domain, n);
		w->group[n] = 0;
	}
}
