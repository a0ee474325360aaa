import { assertEquals, assertStringIncludes } from "@std/assert";
import { fakeHostChecks } from "../../../../tests/support/fakes/fake_host_checks.ts";
import { type HostChecks, type HostFinding, KUBE_PROXY_ALIVE } from "../../../proxy/host_checks.ts";
import { showTakeover } from "./cleanup.ts";

const ALIVE: HostFinding = {
  id: KUBE_PROXY_ALIVE,
  severity: "blocking",
  summary: "A kube-proxy runs",
  evidence: ["127.0.0.1:10249/proxyMode says iptables"],
  cure: "turn it off",
};

Deno.test("showTakeover() prints the removals with their commands, and removes nothing", async () => {
  const asked: boolean[] = [];
  const hostChecks: HostChecks = {
    ...fakeHostChecks({ findings: [ALIVE] }),
    removeKubeProxy({ dryRun }) {
      asked.push(dryRun);
      return Promise.resolve({ removed: ["chain X"], failed: [], commands: ["rm X\n"] });
    },
    removeKubeRouterPolicies({ dryRun }) {
      asked.push(dryRun);
      return Promise.resolve({ removed: ["chain KUBE-ROUTER-INPUT"], failed: [], commands: [] });
    },
  };
  let out = "";
  const print = (text: string) => void (out += text);
  const options = {
    ...{ mode: "userspace" as const, networkPolicy: false, excludeCidrs: [] },
    signal: new AbortController().signal,
  };
  await showTakeover({ hostChecks, print, complain: print }, options);
  assertEquals(asked, [true]);
  assertEquals(out.includes("NetworkPolicies"), false);
  for (const words of [ALIVE.evidence[0]!, "would remove chain X\n", "rm X\n", "turn it off"]) {
    assertStringIncludes(out, words);
  }
  out = "";
  await showTakeover({ hostChecks, print, complain: print }, { ...options, networkPolicy: true });
  assertEquals(asked, [true, true, true]);
  assertStringIncludes(out, "would remove chain KUBE-ROUTER-INPUT\n");
});
