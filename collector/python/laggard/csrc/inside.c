/* inside.c: how deep a thread is in what, see inside.py. Included by module.c. */

static __thread struct { int forward, backward, collective, calls, coalescing, optimizer, saving; } inside
	__attribute__((tls_model("initial-exec")));

static int *inside_field(void *offset) { return (int *)(void *)((char *)&inside + (size_t)offset); }

static PyObject *get_inside(PyObject *self, void *offset) {
	(void)self;
	return PyLong_FromLong(*inside_field(offset));
}

static int set_inside(PyObject *self, PyObject *value, void *offset) {
	long n = value ? PyLong_AsLong(value) : 0;
	(void)self;
	if (n == -1 && PyErr_Occurred())
		return -1;
	*inside_field(offset) = n < 0 ? 0 : (int)(n & INT_MAX); /* a forked child leaves what its parent entered */
	return 0;
}

#define FIELD(name) \
	{#name, get_inside, set_inside, NULL, (void *)offsetof(__typeof__(inside), name)}
static PyGetSetDef inside_fields[] = {
	FIELD(forward), FIELD(backward), FIELD(collective), FIELD(calls), FIELD(coalescing), FIELD(optimizer), FIELD(saving),
	{NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject InsideType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "_laggard.Inside",
	.tp_doc = "How deep the calling thread is in what.",
	.tp_basicsize = sizeof(PyObject),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = PyType_GenericNew,
	.tp_getset = inside_fields,
};
