/**
 * The servers of a kube-proxy: `/proxyMode` on 10249 and `/healthz` on 10256, as its 1.36 release
 * answers. Its mode is the argument. Prints a line once it listens. A program of its own, for a
 * namespace.
 *
 * @module
 */

const HEALTHZ_HEADERS = { "content-type": "application/json", "x-content-type-options": "nosniff" };

function healthz(): Response {
  const now = new Date().toISOString();
  const body = {
    lastUpdated: now,
    currentTime: now,
    nodeEligible: true,
    healthy: true,
    status: { IPv4: { lastUpdated: now, healthy: true } },
  };
  return new Response(JSON.stringify(body), { headers: HEALTHZ_HEADERS });
}

if (import.meta.main) {
  const [mode = "iptables"] = Deno.args;
  const notFound = () => new Response("404 page not found\n", { status: 404 });
  const serve = (port: number, path: string, answer: () => Response) =>
    Deno.serve(
      { hostname: "127.0.0.1", port, onListen: () => {} },
      (request) => new URL(request.url).pathname === path ? answer() : notFound(),
    );
  serve(10249, "/proxyMode", () => new Response(mode));
  serve(10256, "/healthz", healthz);
  await Deno.stdout.write(new TextEncoder().encode("listening\n"));
}
