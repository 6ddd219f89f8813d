"""Names that are never indexed, whatever a source's own ignore rules say.

Three lists: the exclusion floor (state of tools, vendored packages, build artefacts), the secret deny-list, and names
that tell of binary or generated content without a read. All matching is on one name, lower-cased where the file
systems of other platforms are.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable

from services.ingest.media import MEDIA_SUFFIXES
from services.ingest.skips import SkipReason


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXCLUDED_FOLDERS = _words(
    """
    .git .hg .svn .bzr .jj .sl _darcs CVS node_modules bower_components jspm_packages .pnpm-store .yarn
    __pycache__ __pypackages__ .venv .tox .nox .eggs .pixi .mypy_cache .pytest_cache .ruff_cache .pytype .pyre
    .hypothesis .ipynb_checkpoints .import_linter_cache .gradle .terraform .terragrunt-cache .next .nuxt
    .svelte-kit .parcel-cache .turbo .nyc_output .sass-cache .bundle .dart_tool .stack-work .ccls-cache .clangd
    .vagrant .serverless .aws-sam .dvc .idea .vs .fleet .Trash .Spotlight-V100 .fseventsd .aws .ssh .gnupg .gpg
    .gcloud .password-store
    """
)
_SECRET_FOLDERS = frozenset({".aws", ".ssh", ".gnupg", ".gpg", ".gcloud", ".password-store"})
_SECRET_PLACES = frozenset({(".docker", "config.json"), (".kube", "config")})  # folders that otherwise hold sources
_EXCLUDED_FOLDER_SUFFIXES = (".egg-info", ".dist-info", ".egg", ".xcodeproj", ".dSYM")
_EXCLUDED_FILES = frozenset({".git", ".hg", ".ds_store", "thumbs.db", "desktop.ini", "cachedir.tag"})

_SECRET_NAMES = _words(
    """
    .env .envrc .netrc _netrc .pypirc .npmrc .yarnrc .pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd
    .htdigest .git-credentials .dockercfg .dockerconfigjson .vault-token .terraformrc terraform.rc
    credentials.tfrc.json .s3cfg .boto .smbcredentials .esmtprc .msmtprc .fetchmailrc .rediscli_auth .authinfo
    .authinfo.gpg credentials credentials.json credentials.yml credentials.yaml credentials.toml credentials.ini
    credentials.cfg credentials.xml credentials.csv credentials.txt .credentials .credentials.json
    credentials.enc secrets secrets.json secrets.yml secrets.yaml secrets.toml secrets.ini secrets.env
    secrets.txt .secrets application_default_credentials.json kubeconfig .kubeconfig master.key production.key
    .streamlit-secrets passwords.txt password.txt shadow gshadow master.passwd auth.json
    """
)
_SECRET_PATTERNS = _words(
    """
    .env.* *.env id_rsa* id_dsa* id_ecdsa* id_ed25519* *_rsa *_dsa *_ecdsa *_ed25519 *.pem *.key *.p8 *.p12
    *.pfx *.pkcs12 *.jks *.jceks *.keystore *.truststore *.bcfks *.kdb *.kdbx *.ppk *.ovpn *.tfstate *.tfstate.*
    *.tfvars *.tfvars.json *.agekey *.gpg *.keytab *.mobileprovision *.snk client_secret*.json
    service-account*.json service_account*.json *-credentials.json *_credentials.json
    """
)
# Templates carry names of settings and no values; a public key is public; the code that handles keys is code.
_NOT_SECRET_PATTERNS = _words(
    """
    .env.example .env.sample .env.template .env.dist .env.defaults .env.schema *.env.example *.env.sample
    *.env.template *.env.dist example.env sample.env template.env *.pub *.example *.sample *.template
    *.tfvars.example id_*.py id_*.md id_*.go id_*.js id_*.ts id_*.rs id_*.java id_*.c id_*.h id_*.rb
    """
)

_BINARY_SUFFIXES = MEDIA_SUFFIXES | _words(
    """
    pyc pyo pyd so dylib dll exe o a lib obj class jar war ear wasm node bin elf ico icns zip gz tgz bz2 tbz xz txz
    zst lz4 lzma 7z rar tar whl egg deb rpm apk dmg iso img cab msi snap ttf otf woff woff2 eot sqlite sqlite3 db mdb
    parquet feather arrow orc avro h5 hdf5 npy npz pkl pickle joblib mat safetensors onnx pt pth ckpt gguf tflite pb
    tq idx mo gmo der crt cer crl swp swo
    """
)
_LOCK_NAMES = _words(
    """
    package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock composer.lock
    poetry.lock uv.lock pdm.lock pipfile.lock pixi.lock pylock.toml conda-lock.yml cargo.lock gemfile.lock
    mix.lock go.sum go.work.sum podfile.lock package.resolved pubspec.lock flake.lock .terraform.lock.hcl
    gradle.lockfile packages.lock.json chart.lock buf.lock
    """
)
_GENERATED_SUFFIXES = (
    "_pb2.py",
    "_pb2.pyi",
    "_pb2_grpc.py",
    "_pb2_grpc.pyi",
    ".pb.go",
    ".pb.cc",
    ".pb.h",
    ".pb.gw.go",
    ".g.dart",
    ".designer.cs",
    ".js.map",
    ".css.map",
    ".mjs.map",
    ".cjs.map",
    ".d.ts.map",
)
_MINIFIED_SUFFIXES = (".min.js", ".min.mjs", ".min.cjs", ".min.css", ".min.html", "-min.js", "-min.css", ".bundle.js")


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in sorted(patterns)))


_SHARED_OBJECT_VERSION = re.compile(r"(?<=\.so)(\.\d+)+$")
_SECRET = _any_of(_SECRET_PATTERNS)
_NOT_SECRET = _any_of(_NOT_SECRET_PATTERNS)


def folder_exclusion(name: str) -> tuple[SkipReason, str] | None:
    """Say why a folder of this name is never entered, or None."""
    if name in _SECRET_FOLDERS:
        return SkipReason.SECRET, f"{name} holds credentials"
    if name in EXCLUDED_FOLDERS or name.endswith(_EXCLUDED_FOLDER_SUFFIXES):
        return SkipReason.EXCLUDED, f"{name} is on the exclusion floor"
    return None


@functools.lru_cache(maxsize=1 << 16)
def file_exclusion(name: str, folder: str = "") -> tuple[SkipReason, str] | None:
    """Say why a file of this name, in a folder of that name, is never read, or None."""
    name = name.lower()
    if name in _EXCLUDED_FILES:
        return SkipReason.EXCLUDED, f"{name} is on the exclusion floor"
    if is_secret_name(name) or (folder, name) in _SECRET_PLACES:
        return SkipReason.SECRET, "the name is on the secret deny-list"
    suffix = _SHARED_OBJECT_VERSION.sub("", name).rpartition(".")[2]
    if suffix in _BINARY_SUFFIXES and suffix != name:
        return SkipReason.BINARY, f".{suffix} is a binary format"
    if name in _LOCK_NAMES:
        return SkipReason.GENERATED, "a lock file, written by a tool"
    if name.endswith(_GENERATED_SUFFIXES):
        return SkipReason.GENERATED, "the name is that of generated code"
    if name.endswith(_MINIFIED_SUFFIXES):
        return SkipReason.MINIFIED, "the name is that of a minified bundle"
    return None


def is_secret_name(name: str) -> bool:
    """Whether a file of this name is on the secret deny-list."""
    name = name.lower()
    if name in _SECRET_NAMES:
        return True
    return _SECRET.match(name) is not None and _NOT_SECRET.match(name) is None
