/* make.c: span() and communication(), which make ranges. Included by module.c. */

/* Words that scripts write as constants are found by their address. */
static struct { PyObject *word; int kind; unsigned text; } known[WORDS];

/* look_up finds a word's kind and id: 1, or 0 when it has none, or -1. */
static COLD int look_up(PyObject *word, int *kind, unsigned *text) {
	PyObject *found, *old;
	unsigned at = (unsigned)((uintptr_t)word >> 4) % WORDS;
	if (!PyUnicode_CheckExact(word) || !do_word)
		return 0;
	found = PyDict_GetItem(known_words, word);
	if (found) {
		Py_INCREF(found);
	} else {
		found = PyObject_CallFunctionObjArgs(do_word, word, NULL); /* kind | id << 8, or -1 */
		if (!found)
			return -1;
		if (PyLong_AsLong(found) >= 0 && PyDict_Size(known_words) < MOST_WORDS)
			PyDict_SetItem(known_words, word, found);
	}
	long both = PyLong_AsLong(found);
	Py_DECREF(found);
	if (PyErr_Occurred())
		return -1;
	if (both < 0)
		return 0;
	*kind = (int)(both & 0xFF);
	*text = (unsigned)(both >> 8);
	old = known[at].word;
	Py_INCREF(word);
	known[at].word = word;
	known[at].kind = *kind;
	known[at].text = *text;
	Py_XDECREF(old);
	return 1;
}

/* pass_on calls a function in Python with what we were called with. */
static COLD PyObject *pass_on(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *names) {
	Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
	PyObject *result = NULL, *positional = PyTuple_New(n), *keywords = named ? PyDict_New() : NULL;
	if (!function)
		PyErr_SetString(PyExc_RuntimeError, "the recorder is not connected");
	else if (positional && (keywords || !named)) {
		for (Py_ssize_t i = 0; i < n; i++) {
			Py_INCREF(args[i]);
			PyTuple_SET_ITEM(positional, i, args[i]);
		}
		for (Py_ssize_t i = 0; i < named; i++)
			if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[n + i]) < 0)
				goto done;
		result = PyObject_Call(function, positional, keywords);
	}
done:
	Py_XDECREF(positional);
	Py_XDECREF(keywords);
	return result;
}

static PyObject *make_span(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
	(void)self;
	if (LIKELY(n == 1 && !names)) {
		PyObject *word = args[0];
		unsigned at = (unsigned)((uintptr_t)word >> 4) % WORDS, text;
		int kind, got;
		if (LIKELY(known[at].word == word))
			return (PyObject *)new_range(known[at].kind, known[at].text);
		got = look_up(word, &kind, &text);
		if (got)
			return got < 0 ? NULL : (PyObject *)new_range(kind, text);
	}
	return pass_on(do_span, args, n, names);
}

/* small finds a number in a dict of names; -1 when it must be asked for in Python. */
static inline long small(PyObject *dict, PyObject *name) {
	PyObject *found = PyUnicode_CheckExact(name) ? PyDict_GetItem(dict, name) : NULL;
	return found ? PyLong_AsLong(found) : -1;
}

/* communication(op, group="", count=0, dtype="", peer=-1) of known words; what is
 * new goes to Python once. */
static PyObject *make_communication(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
	PyObject *given[5] = {NULL}, *key[5] = {name_op, name_group, name_count, name_dtype, name_peer};
	Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
	long op, group, dtype, peer;
	long long count;
	int overflow = 0;
	(void)self;
	if (!do_communication || n > 5)
		return pass_on(do_communication, args, n, names);
	for (Py_ssize_t i = 0; i < n; i++)
		given[i] = args[i];
	for (Py_ssize_t i = 0; i < named; i++) {
		int k = 0;
		while (k < 5 && key[k] != PyTuple_GET_ITEM(names, i))
			k++;
		if (k == 5 || given[k])
			return pass_on(do_communication, args, n, names);
		given[k] = args[n + i];
	}
	op = given[0] ? small(ids, given[0]) : -1;
	group = given[1] ? small(ids, given[1]) : 0;
	dtype = given[3] ? small(dtypes, given[3]) : 0;
	if (op < 0 || group < 0 || dtype < 0 || (given[2] && !PyLong_CheckExact(given[2])) || (given[4] && !PyLong_CheckExact(given[4])))
		return pass_on(do_communication, args, n, names);
	count = given[2] ? PyLong_AsLongLongAndOverflow(given[2], &overflow) : 0;
	peer = given[4] && !overflow ? PyLong_AsLongAndOverflow(given[4], &overflow) : -1;
	if (overflow || count < 0 || peer < -1 || peer > INT32_MAX)
		return pass_on(do_communication, args, n, names);
	Range *s = new_range(LAGGARD_COMMUNICATION, (unsigned)op);
	if (s) {
		s->attr.group = (uint16_t)group;
		s->attr.dtype = (uint8_t)dtype;
		s->attr.peer = (int32_t)peer;
		s->attr.value = count;
	}
	return (PyObject *)s;
}
