"""The web application of ``certs.scraped``: one page, and nothing for who may not read it."""

from aiohttp import web
from aiohttp.typedefs import Handler

from kube import authz, metrics
from kube.authz import Authorizer, NotAuthorizedError, UnauthenticatedError

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def application(gate: Authorizer) -> web.Application:
    """Return the web application; ``gate`` says who may read the metrics, whatever the path."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            await authz.check_scraper(gate, request.headers.get("Authorization", ""))
        except UnauthenticatedError as error:
            raise web.HTTPUnauthorized(text=f"{error}\n", headers=_CHALLENGE) from error
        except NotAuthorizedError as error:
            raise web.HTTPForbidden(text=f"{error}\n") from error
        return await handler(request)

    app = web.Application(middlewares=[guard], client_max_size=1024)
    app.router.add_get(authz.METRICS_PATH, _page)
    return app


async def _page(_: web.Request) -> web.StreamResponse:
    return web.Response(body=metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})
