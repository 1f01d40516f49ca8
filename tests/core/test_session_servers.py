"""Sessions in a web server: dependencies, streams and background tasks of FastAPI and Starlette."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest

from guarded_core import Guard, InMemoryToolAuditTrail, NoSession, ToolExecutionContext, ToolExecutionPolicy
from guarded_core.audit.event import AuditEvent
from guarded_core.ground import blocks

fastapi = pytest.importorskip("fastapi")
from fastapi import BackgroundTasks, Depends, FastAPI  # noqa: E402
from fastapi.responses import StreamingResponse  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from starlette.middleware.base import BaseHTTPMiddleware  # noqa: E402

_user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
_seen: contextvars.ContextVar[list[str]] = contextvars.ContextVar("seen")
later: list[str] = []


class Sink(InMemoryToolAuditTrail):
    """Says as whom the call of this very context ran."""

    def append(self, event: AuditEvent) -> None:
        super().append(event)
        if event.outcome == "authorized" and (seen := _seen.get(None)) is not None:
            seen.append(event.principal)


guard = Guard(ToolExecutionPolicy({"look": "read_only"}), audit=Sink(4096))


@guard.tool
def look() -> str:
    """Look."""
    return "seen"


def who(session: ToolExecutionContext | None = None) -> str:
    """As whom a call runs, or the hint of its denial."""
    seen: list[str] = []
    token = _seen.set(seen)
    try:
        guard.call("look", {}, context=session)
    except NoSession as error:
        return f"denied: {error.hint}"
    finally:
        _seen.reset(token)
    return seen[0]


def session(user: str) -> ToolExecutionContext:
    """The session of the user that a request names."""
    return guard.session(user, tools=["look"], max_calls=1000)


def in_sync(user: str) -> Iterator[ToolExecutionContext]:
    """A sync dependency: FastAPI enters it in a worker thread, in a copied context."""
    with session(user) as opened:
        yield opened


async def in_async(user: str) -> AsyncIterator[ToolExecutionContext]:
    """An async dependency: entered by the request's own task."""
    async with session(user) as opened:
        yield opened


Sync = Annotated[ToolExecutionContext, Depends(in_sync)]
Async = Annotated[ToolExecutionContext, Depends(in_async)]


def make_app() -> FastAPI:
    """An endpoint for each row of the table in docs/sessions.md."""
    app = FastAPI()

    @app.get("/sync/sync")
    def sync_sync(opened: Sync) -> str:
        return who()

    @app.get("/sync/async")
    async def sync_async(opened: Sync) -> str:
        return who()

    @app.get("/sync/handed")
    async def sync_handed(opened: Sync) -> str:
        return who(opened)

    @app.get("/async/sync")
    def async_sync(opened: Async) -> str:
        return who()

    @app.get("/async/async")
    async def async_async(opened: Async) -> str:
        await asyncio.sleep(0.002)
        return who()

    @app.get("/async/gather")
    async def async_gather(opened: Async) -> str:
        return " ".join(sorted(set(await asyncio.gather(*(asyncio.to_thread(who) for _ in range(3))))))

    @app.get("/stream/async")
    async def stream_async(user: str) -> StreamingResponse:
        async def body() -> AsyncIterator[str]:
            async with session(user):
                for _ in range(4):
                    yield who() + ";"
                    await asyncio.sleep(0)

        return StreamingResponse(body())

    @app.get("/stream/sync")
    def stream_sync(user: str) -> StreamingResponse:
        def body() -> Iterator[str]:
            with session(user):
                for _ in range(4):
                    yield who() + ";"

        return StreamingResponse(body())

    @app.get("/stream/handed")
    def stream_handed(user: str) -> StreamingResponse:
        opened = session(user)
        return StreamingResponse(who(opened) + ";" for _ in range(4))

    @app.get("/background")
    async def background(user: str, tasks: BackgroundTasks) -> str:
        tasks.add_task(lambda: later.append(who()))
        with session(user):
            return who()

    @app.get("/pool")
    async def pool(opened: Async) -> list[str]:
        with ThreadPoolExecutor(1) as workers:
            return [workers.submit(call).result() for call in (who, who)]

    return app


def get(client: TestClient, path: str, user: str) -> str:
    """The answer to a request of that user."""
    response = client.get(path, params={"user": user})
    assert response.status_code == 200
    return str(response.text).strip('"')


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of the server, and at the end no block that was left behind."""
    with TestClient(make_app()) as client:
        yield client
    assert blocks._generators == {}


@pytest.mark.parametrize("path", ["/async/sync", "/async/async", "/async/gather", "/sync/handed"])
def test_the_endpoint_runs_as_the_user(client: TestClient, path: str) -> None:
    """An async dependency with yield, or one that hands its session over."""
    assert get(client, path, "ann") == "ann"


@pytest.mark.parametrize("path", ["/sync/sync", "/sync/async"])
def test_a_sync_dependency_is_denied(client: TestClient, path: str) -> None:
    """FastAPI enters it in a copied context, so that the endpoint has no session; the error says what to do."""
    said = get(client, path, "ann")
    assert said.startswith("denied")
    assert "FastAPI dependency with yield that is not async" in said
    assert "context=" in said


def test_streams(client: TestClient) -> None:
    """Each step of an async stream runs; of a sync one, the first: the others come from other contexts."""
    assert get(client, "/stream/async", "ann") == "ann;" * 4
    first, *others = get(client, "/stream/sync", "ann").strip(";").split(";")
    assert first == "ann"
    assert len(others) == 3
    assert all(other.startswith("denied") and "context=" in other for other in others)
    assert get(client, "/stream/handed", "ann") == "ann;" * 4


def test_background_tasks_after_the_block(client: TestClient) -> None:
    """A background task runs when the endpoint's block is over."""
    later.clear()
    assert get(client, "/background", "ann") == "ann"
    assert len(later) == 1
    assert later[0].startswith("denied")


def test_a_pool_without_context(client: TestClient) -> None:
    """A plain thread pool hands no context over."""
    assert get(client, "/pool", "ann").count("denied") == 2


def test_many_users_at_once(client: TestClient) -> None:
    """Requests of many users side by side, of every kind: each is its own user's, or denied."""
    paths = ["/async/sync", "/async/async", "/async/gather", "/sync/handed", "/stream/async", "/stream/handed"]
    wrong: list[tuple[str, str, str]] = []

    def requests(user: str) -> None:
        for path in paths:
            said = set(get(client, path, user).strip(";").split(";"))
            if said != {user}:
                wrong.append((path, user, str(said)))

    threads = [threading.Thread(target=requests, args=(f"user-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_identify_needs_no_block() -> None:
    """Behind a middleware that knows the user, the guard asks who calls: no `with` anywhere."""
    sessions = {name: None for name in ("ann", "bob")}
    asked = Guard(
        ToolExecutionPolicy({"look": "read_only"}),
        identify=lambda runtime: sessions[_user.get()] if _user.get(None) in sessions else None,
    )

    @asked.tool(name="look")
    def look_too() -> str:
        return "seen"

    sessions |= {name: asked.session(name, tools=["look"]) for name in sessions}  # type: ignore[misc]
    app = FastAPI()

    async def known(request: Any, call_next: Any) -> Any:
        _user.set(request.query_params["user"])
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=known)

    @app.get("/")
    def endpoint() -> str:
        asked.call("look", {})
        return asked.audit.events[-1].principal  # type: ignore[union-attr, no-any-return]

    with TestClient(app) as client:
        assert [get(client, "/", name) for name in ("ann", "bob", "ann")] == ["ann", "bob", "ann"]
        with pytest.raises(NoSession):
            client.get("/", params={"user": "eve"})
