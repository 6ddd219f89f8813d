"""Settings: what is wrong is told in a line that names the variable, and never shows what may be a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from pydantic import ValidationError

from services.core.addresses import check_listen, check_target
from services.core.conninfo import check_conninfo
from services.core.settings import Settings
from services.core.starting import wrong_settings
from services.core.store_settings import StoreSettings
from services.decisions.settings import DecisionsSettings
from services.embed.settings import EmbedSettings
from services.ingest.settings import IngestSettings
from services.search.settings import SearchSettings

URL = "postgresql://u:p@h/d"
NEEDED = {
    DecisionsSettings: {"DATABASE_URL": URL},
    EmbedSettings: {"MODELS_DIR": "/m"},
    IngestSettings: {"DATABASE_URL": URL, "SIDECAR_DIR": "/s", "LOCAL_DIR": "/l", "MODELS_DIR": "/m"},
    SearchSettings: {"DATABASE_URL": URL, "SIDECAR_DIR": "/s", "LOCAL_DIR": "/l"},
}


def read(kind: type[Settings], monkeypatch: pytest.MonkeyPatch, **given: str) -> Settings:
    for name, value in {**NEEDED.get(kind, {}), **given}.items():
        monkeypatch.setenv(f"UNDERCROFT_{name}", value)
    return kind()


def refusal(kind: type[Settings], monkeypatch: pytest.MonkeyPatch, **given: str) -> dict[str, str]:
    with pytest.raises(ValidationError) as told:
        read(kind, monkeypatch, **given)
    assert "input_value" not in str(told.value)
    return wrong_settings(kind, told.value)


@pytest.mark.parametrize("kind", NEEDED)
def test_what_is_needed_is_named_all_at_once(kind: type[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = refusal(kind, monkeypatch, **dict.fromkeys(NEEDED[kind], ""))
    assert set(wrong) == {f"UNDERCROFT_{name}" for name in NEEDED[kind]}
    assert all(cause.startswith("is needed, and is not set or empty. It means: ") for cause in wrong.values())


@pytest.mark.parametrize("kind", NEEDED)
def test_an_empty_setting_is_not_set(kind: type[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read(kind, monkeypatch)
    optional = {
        name: " " for name in kind.model_fields if name not in kind.empty_means and name.upper() not in NEEDED[kind]
    }
    assert read(kind, monkeypatch, **{name.upper(): blank for name, blank in optional.items()}) == plain


def test_an_empty_setting_that_means_something_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    embed = read(EmbedSettings, monkeypatch, PRELOAD_MODELS="")
    assert isinstance(embed, EmbedSettings)
    assert embed.preloaded(["one"]) == []
    ingest = read(IngestSettings, monkeypatch, DEFAULT_MODEL="")
    assert isinstance(ingest, IngestSettings)
    assert ingest.default_model == ""


@pytest.mark.parametrize(
    ("kind", "name", "value", "cause"),
    [
        (SearchSettings, "THREADS", "many", "must be a whole number, at least 0 and at most 512."),
        (SearchSettings, "THREADS", "-1", "must be a whole number, at least 0 and at most 512."),
        (SearchSettings, "POLL_S", "inf", "must be a number, above 0 and at most 3600."),
        (SearchSettings, "DRAIN_S", "nan", "must be a number, at least 0 and at most 86400."),
        (SearchSettings, "LOG_LEVEL", "verbose", "must be one of DEBUG, INFO, WARNING, ERROR."),
        (SearchSettings, "LISTEN", "50051", "must be host:port, such as 0.0.0.0:50051"),
        (SearchSettings, "EMBED_TARGET", "http://embed:50052", "must be host:port, such as 127.0.0.1:50052"),
        (SearchSettings, "DATABASE_PREPARE", "maybe", "must be true or false."),
        (IngestSettings, "DEFAULT_MODEL", "../other", "must be the name of a folder of the models directory"),
        (IngestSettings, "UPLOAD_MAX_FILES", "0", "must be a whole number, at least 1 and at most 100000000."),
        (EmbedSettings, "MODELS_DIR", "models", "must be an absolute path."),
    ],
)
def test_a_wrong_setting_is_told_with_what_it_must_be(
    kind: type[Settings], name: str, value: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = refusal(kind, monkeypatch, **{name: value})
    assert list(wrong) == [f"UNDERCROFT_{name}"]
    assert wrong[f"UNDERCROFT_{name}"].startswith(cause)
    assert "It means: " in wrong[f"UNDERCROFT_{name}"]


@pytest.mark.parametrize("given", [{"MAX_TEXTS": "20", "QUEUE_CAPACITY": "10"}, {"QUEUE_CAPACITY": "10"}])
def test_two_settings_that_do_not_go_together_are_both_named(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = refusal(EmbedSettings, monkeypatch, **given)
    assert wrong["UNDERCROFT_MAX_TEXTS"].startswith("must not be above UNDERCROFT_QUEUE_CAPACITY")


def test_the_appliances_home_is_named_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(IngestSettings, monkeypatch, HOME="/srv/undercroft")
    assert isinstance(settings, IngestSettings)
    assert settings.data_dir == Path("/srv/undercroft")


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://u:Pa/ss@h/d",
        "postgresql://u:P?ss@sec/retPW@h/d",
        "postgresql://u:P?ss/retPW@h/d",
        "postgresql://u:Pa ss@h/d",
        "postgresql://u:%ff%feabc@h/d",
        "postgresql://u:Pass@h/d?options=-csearch_path=x",
        "postgresql://u:Pass@h/d?connect_timeout=soon",
        "postgresql://u:P@ss@h/d",
        "postgresql://u:Pa#ss%zz@h/d",
        "postgresql://u:Pass@h:port/d",
        "postgresql://u:Pass@h:99999/d",
        "postgresql://u:Pass@h/d?sslmod=require",
        "mysql://u:Pass@h/d",
        "u:Pass@h/d",
        "host=h port=5432 password=Pass colour=red",
        "host=h password='Pass",
    ],
)
def test_a_connection_string_that_is_misread_is_refused_without_its_text(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = refusal(DecisionsSettings, monkeypatch, DATABASE_URL=value)
    cause = wrong["UNDERCROFT_DATABASE_URL"]
    assert "percent-encoded" in cause
    assert "ss" not in cause.replace("password", "").replace("PASSWORD", "")


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://h/d",
        "postgres://u@h:5432/d?sslmode=require",
        "postgresql:///d?host=/run/postgresql",
        "postgresql://u:p?q@h/d?sslrootcert=/a@b",
        "postgresql://u:p%40%2F@[::1]:5432,other:5433/d?target_session_attrs=read-write",
        "host=/run/postgresql dbname=d user=u password='a b://c@d'",
        "postgresql://",
    ],
)
def test_a_connection_string_that_libpq_reads_is_taken(value: str) -> None:
    assert check_conninfo(value) == value


@given(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1))
def test_any_password_is_taken_percent_encoded(password: str) -> None:
    url = f"postgresql://u:{quote(password, safe='')}@h:5432/d"
    assert conninfo_to_dict(check_conninfo(url))["password"] == password


@pytest.mark.parametrize("value", ["0.0.0.0:50051", "[::]:50051", "localhost:0", "a-b.c:65535", "[fe80::1%eth0]:1"])
def test_addresses_to_listen_on(value: str) -> None:
    assert check_listen(value) == value


@pytest.mark.parametrize(
    "value", ["50051", ":50051", "0.0.0.0:65536", "0.0.0.0:-1", "0.0.0.0:", "::1:5", "1.2.3:4", "a b:1", "http://a:1"]
)
def test_no_addresses_to_listen_on(value: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        check_listen(value)


@pytest.mark.parametrize(
    "value",
    [
        "embed:50052",
        "dns:///embed.ns.svc:50052",
        "dns://10.0.0.1/embed:1",
        "ipv4:1.2.3.4:5,1.2.3.5:6",
        "unix:///run/a",
        "ipv6:%5B::1%5D:5",
        "unix-abstract:name",
        "embed.ns.svc.:5",
    ],
)
def test_targets(value: str) -> None:
    assert check_target(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "embed",
        "embed:0",
        "dns:///embed",
        "https://embed:443",
        "ipv6:1.2.3.4:5,x",
        "unix:",
        "ipv4:host:50",
        "ipv6:127.0.0.1:50",
        "a..b:50",
    ],
)
def test_no_targets(value: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        check_target(value)


def test_a_password_is_in_no_text_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(DecisionsSettings, monkeypatch, DATABASE_URL=" postgresql://u:hidden@h/d ")
    assert isinstance(settings, StoreSettings)
    assert settings.database_url.get_secret_value() == "postgresql://u:hidden@h/d"
    assert "hidden" not in repr(settings) + str(settings.model_dump())
