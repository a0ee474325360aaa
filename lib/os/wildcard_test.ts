import { assert, assertEquals } from "@std/assert";
import { FakeListener } from "../../tests/support/fakes/fake_network.ts";
import { testNeeding } from "../../tests/support/requirement.ts";
import { type Network, type SocketAddress, systemNetwork } from "./network.ts";
import { probeWildcard, wildcardHostnames } from "./wildcard.ts";

/** A machine on which these addresses can't be listened on, port 0 being 4711. */
function machineWithout(...taken: readonly string[]) {
  const listeners: FakeListener[] = [];
  const network: Pick<Network, "listenTcp"> = {
    listenTcp({ hostname, port }: SocketAddress) {
      if (taken.includes(hostname)) throw new Deno.errors.AddrInUse(hostname);
      const listener = new FakeListener({ hostname, port: port || 4711 });
      listeners.push(listener);
      return listener;
    },
  };
  return { network, listeners };
}

Deno.test("probeWildcard() reports the families of [::], and closes its sockets", () => {
  const rows = [
    { taken: ["0.0.0.0"], expect: "both", hostnames: ["::"] },
    { taken: [], expect: "ipv6-only", hostnames: ["::", "0.0.0.0"] },
    { taken: ["::"], expect: "none", hostnames: ["0.0.0.0"] },
  ];
  for (const { taken, expect, hostnames } of rows) {
    const { network, listeners } = machineWithout(...taken);
    const wildcard = probeWildcard(network);
    assertEquals(wildcard, expect);
    assertEquals(wildcardHostnames(wildcard), hostnames);
    assert(listeners.every(({ closed }) => closed), expect);
  }
});

const test = testNeeding("probeWildcard()", [["IPv6", probeWildcard(systemNetwork) !== "none"]]);
test("probeWildcard() describes the sockets of this machine", async () => {
  using listener = Deno.listen({ hostname: "::", port: 0 });
  const reached = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port })
    .then((connection) => connection.close(), () => "refused");
  const expected = reached === "refused" ? "ipv6-only" : "both";
  assertEquals(probeWildcard(systemNetwork), expected);
});
