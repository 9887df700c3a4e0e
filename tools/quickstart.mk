# The quickstart: a made-up world, a supervised start, MemPO, and an evaluation before and after, into runs/world. A stage
# is skipped when its output is there and newer than its config and what it was made from; one that was stopped goes on.
# Training and evaluation take options, as in `make run RUN_OPTIONS="--set model.threads=1"`.

WORLD := runs/world

# What a run left that began with another config or from other data cannot be gone on with.
define begin
@if [ -e $(1)/config.toml ] && [ -n "$$(find $^ -newer $(1)/config.toml)" ]; then rm -rf $(1); fi
@echo; echo "== $(2)"
endef

# A stage that was interrupted ends with exit code 0, like one that came to its end.
stopped = echo "stopped before the last step; make run goes on"; exit 1

$(WORLD)/data/world.json: configs/world/world.toml | bin/mempo-train
	@echo "== world: a made-up encyclopedia, questions, demonstrations and a small model"
	bin/mempo-train world $<
	@touch $@

$(WORLD)/sft/model/config.json: configs/world/sft.toml $(WORLD)/data/world.json | bin/mempo-train
	$(call begin,$(WORLD)/sft,supervised start: it learns the task$(,) and is careless with its memory)
	bin/mempo-train sft $< $(RUN_OPTIONS)
	@if [ -e $@ ]; then touch $@; else $(stopped); fi

$(WORLD)/before/results.json: configs/world/eval.toml $(WORLD)/sft/model/config.json | bin/mempo-train
	$(call begin,$(WORLD)/before,evaluation before MemPO)
	bin/mempo-train eval $< --set run.dir=$(@D) --set model.path=$(WORLD)/sft/model $(RUN_OPTIONS)

# One stage at a time, also where make may run several: the evaluation goes first.
$(WORLD)/mempo/trained: configs/world/mempo.toml $(WORLD)/sft/model/config.json | bin/mempo-train $(WORLD)/before/results.json
	$(call begin,$(WORLD)/mempo,MemPO)
	bin/mempo-train $< $(RUN_OPTIONS)
	@last=$$(printf 'step_%06d' "$$(awk '$$1 == "steps" {print $$3; exit}' $(@D)/config.toml)"); test -e $(@D)/checkpoints/$$last/complete \
		|| { $(stopped); }; echo $$last >$@

$(WORLD)/after/table.txt: configs/world/eval.toml $(WORLD)/before/results.json $(WORLD)/mempo/trained | bin/mempo-train
	$(call begin,$(WORLD)/after,evaluation after MemPO)
	@mkdir -p $(@D)
	bin/mempo-train eval $< --set run.dir=$(@D) --set model.path=$(WORLD)/mempo/checkpoints/$$(cat $(WORLD)/mempo/trained) \
		--compare $(WORLD)/before/results.json $(RUN_OPTIONS) >$@.new
	@mv $@.new $@

.PHONY: run
run: $(WORLD)/after/table.txt ## a small model learns to search and to remember, in minutes and without a download: runs/world
	@echo; sed -n '/^compared with/,$$p' $(WORLD)/after/table.txt
	@echo; echo "the report: $(WORLD)/mempo/report.html"
