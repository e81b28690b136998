/* operation.c: operations of a process group on the host, between the group's two hooks,
 * and to the wait where their caller waits at once. Included by module.c.
 *
 * What their caller waits for at once is one range in its own thread; an asynchronous one is
 * begun here, and Python follows it from when it is issued, unless C++ has issued it by itself
 * in a backward pass, as DDP's reducer does. Whatever else one may be (on an accelerator, in a
 * graph, put off, the first of its thread or of its group) is for the functions in Python that
 * these hooks stand before, see operations.py: C takes what it is sure of. */

static PyObject *op_kinds, *op_dtypes, *op_follow, *op_tell; /* operations._kinds, collectives.dtypes, operations._follow, futures.tell */
static PyObject *name_module, *name_torch_ops, *name_engine;
static PyObject *name_async, *name_name, *name_inputs, *name_outputs, *name_value, *name_work, *name_numel, *name_cpu, *name_dtype_of;

/* What this thread has issued and not waited for; work is NULL between the two hooks, the
 * only time that an asynchronous one is here. */
static __thread struct { Range *range; PyObject *work; int64_t returned; int asynchronous, engine; } current;

/* What C++ has issued by itself in this thread's backward pass, the last one first: before the
 * pass ends it waits for all of it, where nobody sees it. */
static __thread Range *reduced;

/* settle ends what nobody waited for: it raised before it was issued, or its Work had
 * nothing to wait for. */
static COLD void settle(void) {
	Range *s = current.range;
	PyObject *work = current.work;
	current.range = NULL;
	current.work = NULL;
	if (s && work && s->range.state == RECORDED) {
		set_dur(s, current.returned);
		set_exposed(s, (int64_t)s->range.slot[3]);
		range_ends(s);
	} else if (s) {
		laggard_cancel(&s->range);
	}
	Py_XDECREF(s);
	Py_XDECREF(work);
}

/* is reports whether an attribute is that very object; -1 with an exception. */
static int is(PyObject *o, PyObject *name, PyObject *that) {
	PyObject *found = PyObject_GetAttr(o, name);
	Py_XDECREF(found);
	return found ? found == that : -1;
}

/* measured adds up the elements of tensors on the host; 0 where they aren't such. */
static int measured(PyObject *tensors, laggard_attr *a) {
	if (!PyList_Check(tensors) || !PyList_GET_SIZE(tensors))
		return 0;
	for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); i++) {
		PyObject *tensor = PyList_GET_ITEM(tensors, i), *dtype, *code, *n;
		if (is(tensor, name_cpu, Py_True) != 1 || !(dtype = PyObject_GetAttr(tensor, name_dtype_of)))
			return 0;
		code = PyDict_GetItem(op_dtypes, dtype);
		Py_DECREF(dtype);
		if (!code || !(n = PyObject_CallMethodObjArgs(tensor, name_numel, NULL)))
			return 0;
		a->value += PyLong_AsLongLong(n);
		a->dtype = (uint8_t)PyLong_AsLong(code);
		Py_DECREF(n);
	}
	return !PyErr_Occurred();
}

/* payload measures what an operation brings, or what this rank gets of it, where there is
 * any. Each call makes a new list, so it is called only where it is used. */
static int payload(PyObject *operation, int gets, laggard_attr *a) {
	PyObject *tensors = PyObject_GetAttr(operation, gets ? name_outputs : name_inputs);
	int done = tensors ? measured(tensors, a) : 0;
	Py_XDECREF(tensors);
	return done;
}

/* describe reports whether it is sure that the operation is one of ours, and describes it. */
static int describe(PyObject *operation, PyObject *group, laggard_attr *a) {
	PyObject *globals = PyEval_GetGlobals(), *caller = globals ? PyDict_GetItem(globals, name_module) : NULL, *name, *value, *kind;
	if (!caller || !PyUnicode_Check(caller) || PyUnicode_Compare(caller, name_torch_ops) == 0)
		return 0;
	if (inside.collective || inside.coalescing || inside.saving == 2 || (current.asynchronous = is(operation, name_async, Py_True)) < 0)
		return 0;
	current.engine = inside.backward && PyUnicode_Compare(caller, name_engine) == 0;
	name = PyObject_GetAttr(operation, name_name);
	value = name ? PyObject_GetAttr(name, name_value) : NULL;
	kind = value ? PyDict_GetItem(op_kinds, value) : NULL; /* (word, whether what it gets counts, whether it has a future) */
	Py_XDECREF(name);
	Py_XDECREF(value);
	if (!kind || !PyTuple_Check(kind) || PyTuple_GET_ITEM(kind, 2) != Py_True)
		return 0;
	a->text = (uint16_t)PyLong_AsLong(PyTuple_GET_ITEM(kind, 0));
	a->group = (uint16_t)PyLong_AsLong(group);
	return payload(operation, PyTuple_GET_ITEM(kind, 1) == Py_True, a) && !PyErr_Occurred();
}

/* before is the hook that a group calls before an operation. bound is [the function in
 * Python, the id of the group's name or None]. */
static PyObject *before(PyObject *bound, PyObject *operation) {
	PyObject *group = PyList_GET_ITEM(bound, 1);
	laggard_attr a = {.peer = -1};
	thread *t = &laggard_self;
	if (UNLIKELY(current.range))
		settle();
	if (LIKELY(process && !stopped && group != Py_None) && describe(operation, group, &a)) {
		Range *s = new_range(LAGGARD_COMMUNICATION, 0);
		if (!s)
			return NULL;
		inside.calls++;
		s->attr = a;
		if (t->ring && !current.asynchronous)
			begin_in(t, s);
		else
			begin_shared(t, s); /* it may end in any thread */
		current.range = s;
		Py_RETURN_NONE;
	}
	PyErr_Clear(); /* an attribute that is not there: Python finds its own way */
	return PyObject_CallFunctionObjArgs(PyList_GET_ITEM(bound, 0), operation, NULL);
}

/* completed is what the future of such an operation calls. */
static PyObject *completed(PyObject *range, PyObject *future) {
	Range *s = (Range *)range;
	(void)future;
	if (!s->done)
		s->done = now(&laggard_self);
	Py_RETURN_NONE;
}

static PyMethodDef completed_method = {"completed", completed, METH_O, NULL};

/* tells has the future of a Work say when it is complete; 0 where it has none. */
static int tells(PyObject *work, Range *s) {
	PyObject *function = PyCFunction_New(&completed_method, (PyObject *)s), *done;
	s->done = 0;
	done = function ? PyObject_CallFunctionObjArgs(op_tell, work, function, NULL) : NULL;
	Py_XDECREF(function);
	Py_XDECREF(done);
	if (!done)
		PyErr_Clear();
	return done == Py_True;
}

/* share_out ends what the backward pass has issued: exposed is what runs on after the last of
 * it was issued, without overlap. */
static void share_out(void) {
	Range *sorted = NULL, **at, *s;
	int64_t covered = 0, over = now(&laggard_self);
	while ((s = reduced)) {
		reduced = s->next;
		if (!s->done)
			s->done = over; /* its future is about to say so */
		if (covered < (int64_t)s->range.slot[2])
			covered = (int64_t)s->range.slot[2];
		for (at = &sorted; *at && (*at)->done < s->done; at = &(*at)->next)
			;
		s->next = *at;
		*at = s;
	}
	while ((s = sorted)) {
		sorted = s->next;
		set_dur(s, s->done);
		set_exposed(s, s->done - covered);
		if (covered < s->done)
			covered = s->done;
		range_ends(s);
		Py_DECREF(s);
	}
}

/* follow hands an asynchronous operation and its Work, which it owns, to Python. */
static PyObject *follow(PyObject *work) {
	Range *s = current.range;
	PyObject *done;
	current.range = NULL;
	done = PyObject_CallFunctionObjArgs(op_follow, s, work, NULL);
	Py_DECREF(s);
	Py_DECREF(work);
	return done;
}

/* after is the hook that a group calls when an operation is issued. bound is the function
 * in Python. */
static PyObject *after(PyObject *bound, PyObject *operation) {
	PyObject *work;
	if (!current.range || current.work)
		return PyObject_CallFunctionObjArgs(bound, operation, NULL);
	work = PyObject_GetAttr(operation, name_work);
	if (!work) {
		PyErr_Clear();
		settle();
		return PyObject_CallFunctionObjArgs(bound, operation, NULL); /* it says so */
	}
	current.returned = now(&laggard_self);
	if (current.asynchronous && work != Py_None && current.range->range.state == RECORDED) {
		if (!current.engine || !tells(work, current.range))
			return follow(work);
		current.range->next = reduced;
		reduced = current.range;
		current.range = NULL;
		Py_DECREF(work);
		Py_RETURN_NONE;
	}
	current.work = work; /* held: the Work that the caller gets would be another object */
	if (work == Py_None || current.range->range.state != RECORDED)
		settle();
	Py_RETURN_NONE;
}

static PyMethodDef before_method = {"before", before, METH_O, NULL}, after_method = {"after", after, METH_O, NULL};

/* hooks(before, after) returns a group's two hooks, which stand before these. */
static PyObject *make_hooks(PyObject *self, PyObject *args) {
	PyObject *first, *second, *pre, *post, *both = NULL;
	(void)self;
	if (!PyArg_ParseTuple(args, "O!O:hooks", &PyList_Type, &first, &second))
		return NULL;
	if (PyList_GET_SIZE(first) != 2) {
		PyErr_SetString(PyExc_ValueError, "not [function, name of the group]");
		return NULL;
	}
	pre = PyCFunction_New(&before_method, first);
	post = PyCFunction_New(&after_method, second);
	if (pre && post)
		both = PyTuple_Pack(2, pre, post);
	Py_XDECREF(pre);
	Py_XDECREF(post);
	return both;
}

/* blocked(work) returns the range that a wait for this Work ends, None where it is Python's. */
static PyObject *blocked(PyObject *self, PyObject *work) {
	Range *s = current.range;
	(void)self;
	if (!s || current.work != work)
		Py_RETURN_NONE;
	current.range = NULL;
	Py_CLEAR(current.work);
	return (PyObject *)s;
}

/* unblock() ends what this thread has issued and nobody waits for. */
static PyObject *unblock(PyObject *self, PyObject *unused) {
	(void)self;
	(void)unused;
	if (current.range)
		settle();
	share_out();
	Py_RETURN_NONE;
}

static PyObject *py_share_out(PyObject *self, PyObject *unused) {
	(void)self;
	(void)unused;
	share_out();
	Py_RETURN_NONE;
}

/* follow_operations(kinds, dtypes, follow, tell) takes what operations.py knows. */
static PyObject *follow_operations(PyObject *self, PyObject *args) {
	static const char *const words[] = {"__name__", "torch._ops", "torch.autograd.graph", "async_op", "name", "input_tensors", "output_tensors",
					    "value", "work", "numel", "is_cpu", "dtype"};
	PyObject **const names[] = {&name_module, &name_torch_ops, &name_engine, &name_async, &name_name, &name_inputs, &name_outputs,
				    &name_value, &name_work, &name_numel, &name_cpu, &name_dtype_of};
	PyObject *kinds, *codes, *function, *tell;
	(void)self;
	if (!PyArg_ParseTuple(args, "O!O!OO:follow_operations", &PyDict_Type, &kinds, &PyDict_Type, &codes, &function, &tell))
		return NULL;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!*names[i] && !(*names[i] = PyUnicode_InternFromString(words[i])))
			return NULL;
	Py_INCREF(kinds);
	Py_INCREF(codes);
	Py_INCREF(function);
	Py_INCREF(tell);
	op_kinds = kinds; /* for good */
	op_dtypes = codes;
	op_follow = function;
	op_tell = tell;
	Py_RETURN_NONE;
}
