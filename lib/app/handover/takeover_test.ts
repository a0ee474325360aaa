import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { fakeHostChecks } from "../../../tests/support/fakes/fake_host_checks.ts";
import type { RelayOptions } from "../../config/load.ts";
import { type HostFinding, KUBE_PROXY_ALIVE, OR_TAKE_OVER } from "../../proxy/host_checks.ts";
import { admitStart, findKubeProxyAlive, KubeProxyAliveError } from "./takeover.ts";

const ALIVE: HostFinding = {
  id: KUBE_PROXY_ALIVE,
  severity: "blocking",
  summary: "A kube-proxy runs",
  evidence: ["127.0.0.1:10249/proxyMode says iptables"],
  cure: `turn it off${OR_TAKE_OVER}`,
};

interface Start {
  readonly findings?: readonly HostFinding[];
  readonly uid?: number;
  readonly relay?: Partial<RelayOptions>;
}

async function admit({ findings = [ALIVE], uid = 0, relay = {} }: Start): Promise<string[]> {
  const logger = new MemoryLogger();
  const options = { manifests: [], takeover: false, ...relay } as unknown as RelayOptions;
  const hostChecks = fakeHostChecks({ findings });
  await admitStart({ hostChecks, process: { uid }, logger }, { relay: options });
  return logger.lines.map(({ level, message }) => `${level} ${message}`);
}

Deno.test("admitStart() reports nothing if no kube-proxy answers", async () => {
  assertEquals(await admit({ findings: [] }), []);
});

Deno.test("admitStart() refuses next to a live kube-proxy, and says where it is and how it goes", async () => {
  for (const start of [{}, { uid: 1000 }, { relay: { manifests: ["m"] } }]) {
    const { message } = await assertRejects(() => admit(start), KubeProxyAliveError);
    assertStringIncludes(message, "127.0.0.1:10249/proxyMode says iptables");
    assertStringIncludes(message, `turn it off${OR_TAKE_OVER}`);
  }
});

Deno.test("admitStart() continues with --takeover, and for a plain user's manifests", async () => {
  assertEquals(await admit({ relay: { takeover: true } }), [
    "warn A kube-proxy runs on this node; it is taken over from once Services work here",
  ]);
  assertEquals(await admit({ uid: 1000, relay: { manifests: ["m"] } }), [
    "warn A kube-proxy runs on this node; kube-relay serves Services next to it",
  ]);
});

Deno.test("findKubeProxyAlive() does not advise a takeover to a run that takes over", async () => {
  const alive = await findKubeProxyAlive(fakeHostChecks({ findings: [ALIVE] }));
  assertEquals(alive, { ...ALIVE, cure: "turn it off" });
  assertEquals(await findKubeProxyAlive(fakeHostChecks({ findings: [] })), undefined);
});
