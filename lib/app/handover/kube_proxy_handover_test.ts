import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { fakeHostChecks } from "../../../tests/support/fakes/fake_host_checks.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import {
  type FindingOptions,
  type HostFinding,
  KUBE_PROXY_ALIVE,
} from "../../proxy/host_checks.ts";
import { KubeProxyHandover } from "./kube_proxy_handover.ts";

const ALIVE: HostFinding = {
  id: KUBE_PROXY_ALIVE,
  severity: "blocking",
  summary: "A kube-proxy runs",
  evidence: ["127.0.0.1:10249"],
};
const LEFT: HostFinding = { ...ALIVE, id: "kube-proxy-leftovers-iptables", severity: "warning" };
const POLICIES: HostFinding = { ...ALIVE, id: "kube-router-policies", severity: "info" };

/** The annotation with which k3s describes its arguments. */
const ANNOTATIONS = { "k3s.io/node-args": '["server"]' };

/** A machine on which kube-proxy runs as long as `alive`; queries are recorded. */
class Stage {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly asked: string[] = [];
  readonly controller = new AbortController();
  alive = false;
  broken = false;
  annotations: FindingOptions["nodeAnnotations"];
  readonly handover: KubeProxyHandover;
  readonly running: Promise<void>;

  constructor({ takeover = false, uid = 0 } = {}) {
    const hostChecks = {
      ...fakeHostChecks(),
      findings: ({ scope = "everything", nodeAnnotations }: FindingOptions = {}) => {
        this.asked.push(scope);
        this.annotations = nodeAnnotations;
        if (this.broken) return Promise.reject(new Error("broken"));
        if (scope === "everything") return Promise.resolve([LEFT, POLICIES]);
        return Promise.resolve(this.alive ? [ALIVE] : []);
      },
      removeKubeProxy: () => {
        this.asked.push("remove");
        return Promise.resolve({ removed: ["chain X"], failed: [] });
      },
    };
    const { clock, logger } = this;
    const otherModes = {
      note: () => Promise.resolve(),
      remove: () => Promise.resolve(void this.asked.push("other modes")),
    };
    const recheck = () => void this.asked.push("recheck");
    const edges = { hostChecks, clock, logger, process: { uid }, otherModes, recheck };
    this.handover = new KubeProxyHandover({ ...edges, nodeAnnotations: () => ANNOTATIONS }, {
      relay: { takeover },
      mode: "userspace",
      families: ["IPv4", "IPv6"],
      proxy: defaultConfiguration(),
    });
    this.running = this.handover.run(this.controller.signal);
  }

  async serve(): Promise<void> {
    for (const family of ["IPv4", "IPv6"] as const) this.handover.synced(family);
    await this.clock.advance(0);
  }

  /** Warnings and errors. */
  get complaints(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn" || level === "error")
      .map(({ message }) => message);
  }
}

Deno.test("KubeProxyHandover removes nothing before each family has synced", async () => {
  const stage = new Stage({ takeover: true });
  stage.handover.synced("IPv4");
  stage.handover.synced("IPv4");
  await stage.clock.advance(60_000);
  assertEquals(stage.asked, []);
  await stage.serve();
  await stage.running;
  assertEquals(stage.asked, ["other modes", "ports", "remove"]);
  assertEquals(stage.complaints, []);
});

Deno.test("KubeProxyHandover takes over at once and again when kube-proxy has ended", async () => {
  const stage = new Stage({ takeover: true });
  stage.alive = true;
  await stage.serve();
  await stage.clock.advance(12_000);
  const removals = () => stage.asked.filter((what) => what === "remove").length;
  assertEquals(removals(), 1, "no fight with a kube-proxy that runs");
  assertEquals(stage.handover.pending, true);
  assertEquals(stage.complaints.length, 1);
  stage.alive = false;
  await stage.clock.advance(5_000);
  await stage.running;
  assertEquals(stage.handover.pending, false);
  assertEquals(removals(), 2);
  assertEquals(stage.asked.slice(-2), ["remove", "recheck"], "it may have written to our chains");
});

Deno.test("KubeProxyHandover without --takeover warns of leftovers and removes nothing", async () => {
  const stage = new Stage();
  assertEquals(stage.handover.pending, false);
  await stage.serve();
  await stage.clock.advance(5_000);
  await stage.running;
  assertEquals(stage.asked, ["other modes", "everything"]);
  assertEquals(stage.logger.lines.map(({ fields }) => fields.id), [LEFT.id]);
  assertEquals(stage.annotations, ANNOTATIONS);
});

Deno.test("KubeProxyHandover does not look as a plain user", async () => {
  const stage = new Stage({ uid: 1000 });
  await stage.serve();
  await stage.running;
  assertEquals(stage.asked, ["other modes"]);
});

Deno.test("KubeProxyHandover ends with its signal, wherever it is", async () => {
  for (const takeover of [true, false]) {
    for (const served of [true, false]) {
      const stage = new Stage({ takeover });
      stage.alive = true;
      if (served) await stage.serve();
      stage.controller.abort();
      await stage.running;
      assertEquals(stage.clock.pendingTimers, 0);
    }
  }
});

Deno.test("KubeProxyHandover that fails does not end the proxy", async () => {
  const stage = new Stage({ takeover: true });
  stage.broken = true;
  await stage.serve();
  await stage.running;
  assertEquals(stage.complaints, ["Cannot check for leftovers of another mode or kube-proxy"]);
});
