/**
 * Tests how a client checks its rights before it watches, on the fake and on the real API
 * machinery.
 */
import { assertEquals } from "@std/assert";
import { reviewAccess } from "../../lib/kube/access_review.ts";
import { KubeClient } from "../../lib/kube/client.ts";
import { openTransport } from "../../lib/kube/api_transport.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { tokenAuth } from "./machinery_auth.ts";
import type { StartConformanceServer } from "./server.ts";

const NODES = { group: "", plural: "nodes" } as const;
const SLICES = { group: "discovery.k8s.io", plural: "endpointslices" } as const;

/** Defines the test for one kind of server, which refuses its client all of Nodes. */
export function defineAccessTests(name: string, start: StartConformanceServer): void {
  Deno.test(`reviewAccess() returns the rights that the API server would deny (${name})`, async () => {
    await using server = await start();
    const auth = tokenAuth(server);
    await using transport = openTransport(systemClock, auth);
    const client = new KubeClient({ clock: systemClock, auth, transport });
    const wanted = [NODES, SLICES].flatMap((kind) =>
      (["list", "watch"] as const).map((verb) => ({ verb, ...kind }))
    );
    const refused = await reviewAccess(client, wanted, new AbortController().signal);
    assertEquals(refused, [{ verb: "list", ...NODES }, { verb: "watch", ...NODES }]);
  });
}
