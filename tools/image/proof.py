#!/usr/bin/env python3
"""Proves the commands of the Dockerfile where no Docker engine runs: each stage in a root folder of its own.

    python3 proof.py [--work FOLDER] [--cache FOLDER] [TARGET...]

Base images are made with debootstrap (see image_root), each stage is a layer of an overlay file system on top of its
base, and RUN happens in a chroot with the stage's environment and user. COPY takes the committed files of this
checkout. Then each TARGET (default: cpu and cuda) is tried as its user would: exercise.sh. Sizes are printed at the end.
What is kept in the cache (downloads that are checked against hashes) is not fetched again. It needs root, debootstrap,
5 GB of disk (20 with CUDA), and most of an hour on two cores. The machine's certificates, and variables such as
PIP_INDEX_URL, GOPROXY and https_proxy, hold inside too.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE = "bookworm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PASSED_ON = re.compile(r"^(PIP_|GOPROXY$|GOSUMDB$|SSL_CERT_FILE$|(https?|no)_proxy$)", re.IGNORECASE)


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def instructions(text):
    """The (name, arguments) of a Dockerfile; lines that end in a backslash go on, comments and blank lines are none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def base_and_name(rest):
    """What a FROM says: the image or stage below, and the name of its own stage."""
    if match := re.fullmatch(r"([^\s-]\S*)\s+AS\s+(\S+)", rest, re.IGNORECASE):
        return match.groups()
    sys.exit(f"proof.py knows FROM only as `FROM BASE AS NAME`, without options; the Dockerfile has `FROM {rest}`")


def needed(steps, targets):
    """The stages that the targets stand on or copy from."""
    uses, own = {}, None
    for name, rest in steps:
        if name == "FROM":
            base, own = base_and_name(rest)
            uses[own] = {base}
        elif name == "COPY" and (match := re.search(r"--from=(\S+)", rest)):
            if match[1] not in uses:
                sys.exit(f"proof.py knows COPY --from only of a stage above, by its name; the Dockerfile has `COPY {rest}`")
            uses[own].add(match[1])
    found, ahead = set(), list(targets)
    while ahead:
        stage = ahead.pop()
        if stage in uses and stage not in found:
            found.add(stage)
            ahead += uses[stage]
    if missing := [target for target in targets if target not in uses]:
        sys.exit(f"the Dockerfile has no stage {missing[0]}")
    return found


class Stage:
    """A stage of the Dockerfile: a layer on those of its base, and the settings under which its commands run."""

    def __init__(self, name, folder, base):
        self.name, self.folder = name, folder
        self.lower = [base] if isinstance(base, pathlib.Path) else [base.folder / "layer", *base.lower]
        inherited = base if isinstance(base, Stage) else None
        self.env = dict(inherited.env) if inherited else {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.shell, self.user, self.workdir = (inherited.shell, inherited.user, inherited.workdir) if inherited else (["/bin/sh", "-c"], "0:0", "/")
        self.entrypoint = inherited.entrypoint if inherited else []
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("layer", "work", "root"):
            (folder / part).mkdir(parents=True)
        self.root = folder / "root"
        lower = ":".join(str(path) for path in self.lower)
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={folder}/layer,workdir={folder}/work", self.root)

    def size(self):
        """The bytes of the stage's own layer and of each below it, as MiB."""
        layers = [self.folder / "layer", *self.lower]
        return [int(subprocess.check_output(["du", "-sxm", layer]).split()[0]) for layer in layers]

    def inside(self, command, caches=()):
        """Runs a command in the root: with its processes, devices and names, the caches bound to their places."""
        script = ["set -e", f"cd {shlex.quote(str(self.root))}"]
        binds = [("/dev", "dev"), ("/proc", "proc"), ("/etc/resolv.conf", "etc/resolv.conf"), (CERTIFICATES, CERTIFICATES[1:]), *caches]
        for source, target in binds:
            place = self.root / target.lstrip("/")
            if not place.exists():
                if pathlib.Path(source).is_dir():
                    place.mkdir(parents=True)
                else:
                    continue
            script.append(f"mount --rbind {shlex.quote(str(source))} {shlex.quote(str(place))}")
        passed = {key: value for key, value in os.environ.items() if PASSED_ON.match(key)}
        settings = [f"{key}={value}" for key, value in {**passed, **self.env}.items()]
        inner = f"cd {shlex.quote(self.workdir)} && HOME=$(getent passwd $(id -u) | cut -d: -f6) exec {shlex.join(command)}"
        script.append(shlex.join(["exec", "chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i", *settings, "/bin/sh", "-c", inner]))
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", "\n".join(script))

    def copy(self, sources, target, origin):
        """COPY: files and folders of origin; of a folder its contents. What is copied belongs to root."""
        place = self.root / str(pathlib.PurePosixPath(self.workdir, target)).lstrip("/")
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                run("cp", "-a", "--no-preserve=ownership", f"{path}/.", place)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                run("cp", "-P", "--preserve=mode,timestamps", path, f"{place}/" if target.endswith("/") else place)


class Proof:
    """Goes through the Dockerfile and keeps its stages by name."""

    def __init__(self, work, cache, targets):
        self.work, self.cache, self.targets = work, cache, targets
        self.stages = {}
        self.context = work / "context"
        shutil.rmtree(self.context, ignore_errors=True)
        self.context.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        run("tar", "-x", "-C", self.context, input=archive)

    def image_root(self, image):
        """What stands for a base image: a folder, or a stage on top of it."""
        if re.fullmatch(rf"debian:{SUITE}-\d+-slim", image):
            return self.debian()
        if match := re.fullmatch(rf"golang:([\d.]+)-{SUITE}", image):
            return self.golang(match[1])
        sys.exit(f"proof.py does not know how to make the base image {image}")

    def debian(self):
        """A folder of what Debian's image consists of."""
        folder = self.work / "debian"
        if not folder.exists():
            run("debootstrap", "--variant=minbase", SUITE, f"{folder}.new")
            (pathlib.Path(f"{folder}.new")).rename(folder)
        return folder

    def golang(self, version):
        """What golang's image adds to Debian's: a compiler, and the Go of this machine, which must be the same."""
        goroot, found = subprocess.check_output(["go", "env", "GOROOT", "GOVERSION"], text=True, cwd=ROOT).split()
        if found != "go" + version:
            sys.exit(f"the Dockerfile builds with Go {version}, this machine has {found}")
        stage = Stage("golang", self.work / "golang", self.debian())
        packages = "ca-certificates git g++ gcc libc6-dev make pkg-config"
        stage.inside(["sh", "-c", f"apt-get update -q && apt-get install -q -y --no-install-recommends {packages}"])
        shutil.copytree(goroot, stage.root / "usr/local/go", symlinks=True)
        stage.env.update(GOPATH="/go", GOTOOLCHAIN="local", PATH="/go/bin:/usr/local/go/bin:" + stage.env["PATH"])
        return stage

    def go_through(self, text):
        stage, steps = None, instructions(text)
        wanted = needed(steps, self.targets)
        for name, rest in steps:
            if name == "FROM":
                base, own = base_and_name(rest)
                if own not in wanted:
                    stage = None
                    continue
                below = self.stages.get(base) or self.image_root(base)
                stage = self.stages[own] = Stage(own, self.work / f"stage-{own}", below)
            elif stage is not None:
                print(f"== {stage.name}: {name} {rest}", file=sys.stderr, flush=True)
                self.do(stage, name, rest)

    def do(self, stage, name, rest):
        """Carries out one instruction."""
        if name == "RUN":
            caches = re.findall(r"--mount=type=cache,target=(\S+)", rest)
            command = re.sub(r"--mount=\S+\s*", "", rest)
            stage.inside([*stage.shell, command], [(self.kept(target), target) for target in caches])
        elif name == "COPY":
            words = shlex.split(rest)
            origin = next((self.stages[word.partition("=")[2]].root for word in words if word.startswith("--from=")), self.context)
            *sources, target = [word for word in words if not word.startswith("--")]
            stage.copy(sources, target, origin)
        elif name == "ENV":
            for key, value in (word.split("=", 1) for word in shlex.split(rest)):
                stage.env[key] = re.sub(r"\$\{?(\w+)\}?", lambda m: stage.env.get(m[1], ""), value)
        elif name == "WORKDIR":
            stage.workdir = str(pathlib.PurePosixPath(stage.workdir, rest))
            (stage.root / stage.workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            stage.user = rest
        elif name == "SHELL":
            stage.shell = json.loads(rest)
        elif name == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        elif name not in ("VOLUME", "HEALTHCHECK", "CMD", "LABEL"):
            sys.exit(f"proof.py does not know the instruction {name}")

    def kept(self, target):
        """The folder that stands for a cache mount; the downloads of MEMPO_CACHE are linked into it, not fetched again."""
        folder = self.work / "caches" / target.strip("/").replace("/", "-")
        if not folder.exists():
            folder.mkdir(parents=True)
            if target == "/cache" and (self.cache / "dl").is_dir():
                shutil.copytree(self.cache / "dl", folder / "dl", copy_function=os.link)
        return folder

    def try_out(self, target):
        """Uses the image as a user of it would."""
        stage = self.stages[target]
        if stage.entrypoint != ["mempo-train"]:
            sys.exit(f"{target}: the entry point is {stage.entrypoint}, want mempo-train")
        script = (pathlib.Path(__file__).parent / "exercise.sh").read_text()
        stage.inside(["/bin/sh", "-c", script, "exercise.sh", target])
        own, *below = stage.size()
        print(f"{target}: {own + sum(below)} MiB, of which the base image has {below[-1]} MiB")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, help="where to work; downloads and base in it are used again (default: a temporary folder, removed at the end)")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/mempo-train", help="the cache of make")
    parser.add_argument("targets", nargs="*", default=["cpu", "cuda"], metavar="TARGET")
    return parser.parse_args()


def main():
    if "MEMPO_PROOF" not in os.environ:  # in a mount namespace of its own, with which all mounts go
        os.environ["MEMPO_PROOF"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    given = arguments()
    work = pathlib.Path(tempfile.mkdtemp(prefix="image-proof-")) if given.work is None else given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    try:
        proof = Proof(work, given.cache, given.targets)
        proof.go_through((ROOT / "Dockerfile").read_text())
        for target in given.targets:
            proof.try_out(target)
    except subprocess.CalledProcessError as failure:
        sys.exit(f"exit code {failure.returncode} of {shlex.join(failure.cmd)[-400:]}")
    finally:
        if given.work is None:
            subprocess.run(f"umount -l {work}/*/root; rm -rf {work}", shell=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
