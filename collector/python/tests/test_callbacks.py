"""Callbacks with fake trainers that call what the real ones call."""

import jobs


class Callbacks(jobs.Case):
    def test_lightning(self):
        self.python("""
            import sys, types
            module = types.ModuleType("lightning.pytorch")
            class Callback(object):
                def on_fit_start(self, trainer, pl_module): pass
                def state_dict(self): return {}
            module.Callback = Callback
            package = types.ModuleType("lightning"); package.pytorch = module
            sys.modules.update({"lightning": package, "lightning.pytorch": module})
            import laggard
            callback = laggard.callbacks.lightning()
            assert isinstance(callback, Callback) and callback.state_dict() == {}
            class Trainer(object): global_step = 0
            t = Trainer()
            callback.on_fit_start(t, None)
            for batch in range(6):                       # accumulate_grad_batches = 2
                callback.on_train_batch_start(t, None, "batch", batch)
                with laggard.span("FP"): pass
                if batch % 2: t.global_step += 1
                callback.on_train_batch_end(t, None, "outputs", "batch", batch)
            callback.on_validation_start(t, None); callback.on_validation_end(t, None)
            callback.on_train_batch_start(t, None, "batch", 6)
            callback.on_exception(t, None, ValueError())
        """)
        p = self.process()
        self.assertEqual([s["step"] for s in p.records("Step")], [0, 1, 2])
        self.assertEqual([r["step"] for r in p.records("FP")], [0, 0, 1, 1, 2, 2])
        self.assertEqual(len(p.records("evaluation")), 1)
        self.assertEqual(p.opened(), [])

    def test_transformers(self):
        self.python("""
            import laggard
            callback = laggard.callbacks.transformers()
            class State(object): global_step = 0; num_input_tokens_seen = 0
            s, args, control = State(), object(), object()
            def call(event, **more):
                result = getattr(callback, event)(args, s, control, model=None, **more)
                assert result is None
            call("on_init_end"); call("on_train_begin"); call("on_epoch_begin")
            for n in range(3):
                call("on_step_begin"); call("on_substep_end")
                with laggard.span("FP"): pass
                s.num_input_tokens_seen += 512
                call("on_pre_optimizer_step"); call("on_optimizer_step")
                s.global_step += 1
                call("on_step_end"); call("on_log", logs={})
            call("on_evaluate", metrics={}); call("on_save"); call("on_epoch_end"); call("on_train_end")
        """)
        p = self.process()
        self.assertEqual([(s["step"], s["value"]) for s in p.records("Step")], [(0, 512), (1, 512), (2, 512)])
        self.assertEqual([r["step"] for r in p.records("FP")], [0, 1, 2])

    def test_mindspore(self):
        self.python("""
            import sys, types
            names = ("mindspore", "mindspore.train", "mindspore.train.callback")
            for name in names: sys.modules[name] = types.ModuleType(name)
            class Callback(object):
                def __enter__(self): return self
                def on_train_begin(self, run_context): raise AssertionError("overridden")
            sys.modules[names[2]].Callback = Callback
            import laggard
            callback = laggard.callbacks.mindspore()
            assert isinstance(callback, Callback)
            class Parameters(object): cur_step_num = 0
            class Context(object):
                def original_args(self): return Parameters
            context = Context()
            callback.on_train_begin(context)
            for n in range(3):
                Parameters.cur_step_num += 1
                callback.on_train_step_begin(context)
                with laggard.span("FP"): pass
                callback.on_train_step_end(context)
            callback.on_train_end(context)
        """)
        p = self.process()
        self.assertEqual([s["step"] for s in p.records("Step")], [0, 1, 2])
        self.assertEqual([r["step"] for r in p.records("FP")], [0, 1, 2])

    def test_a_broken_trainer_is_left_alone(self):
        self.python("""
            import laggard
            callback = laggard.callbacks.mindspore()
            callback.step_begin(None); callback.step_end(object())
            laggard.callbacks.lightning().on_train_batch_start(None, None)
            assert laggard.failures() > 0
        """)

    def test_every_hook_swallows_and_counts_its_failure(self):
        self.python("""
            import laggard
            from laggard import callbacks
            made = [laggard.callbacks.lightning(), laggard.callbacks.transformers(), laggard.callbacks.mindspore()]
            def fails(*_, **__): raise RuntimeError("ours")
            torch = {"__name__": "laggard.broken"}
            exec("def fails(*_, **__): raise RuntimeError('ours')", torch)
            for name in ("step_begins", "step_ends", "begins", "ends", "leaves"):
                setattr(callbacks.Steps, name, torch["fails"])
            class Trainer(object): global_step = 0; num_input_tokens_seen = 0
            class Parameters(object): cur_step_num = 1
            class Context(object):
                def original_args(self): return Parameters
            hooks = 0
            for callback in made:
                callback._step = None
                for name in dir(type(callback)):
                    if not name.startswith(("on_", "step_", "epoch_", "begin", "end")) or name in ("begins", "ends", "step_begins", "step_ends"):
                        continue
                    before = laggard.failures()
                    args = (Context(),) if "mindspore" in type(callback).__name__.lower() else (Trainer(), Trainer(), None)
                    if name == "on_train_batch_end":
                        callback._step = laggard.step(7)
                    assert getattr(callback, name)(*args) is None
                    hooks += 1
                    assert laggard.failures() - before in (0, 1), name
            print(hooks, laggard.failures())
            assert laggard.failures() >= 13, laggard.failures()
            assert laggard.enabled()
        """)

    def test_a_failing_recorder_leaves_training_alone(self):
        out, err = self.python("""
            import laggard
            callback = laggard.callbacks.lightning()
            class Trainer(object): global_step = 0
            trained = 0
            for batch in range(5):
                callback.on_train_batch_start(Trainer, None, "batch", batch)
                trained += 1
                Trainer.global_step += 1
                callback.on_train_batch_end(Trainer, None, "outputs", "batch", batch)
            callback.on_train_end(Trainer, None)
            print(trained, laggard.failures(), laggard.enabled())
        """, LAGGARD_RUN="/proc/laggard")
        self.assertEqual(out.split(), ["5", "1", "False"])
        self.assertEqual(err.count("training goes on"), 1)
