import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { configurationOf } from "../../tests/support/drivers/own_flags.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeBackend } from "../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { fakeHostChecks } from "../../tests/support/fakes/fake_host_checks.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { testDependencies } from "../../tests/support/fakes/test_dependencies.ts";
import { withFolder } from "../../tests/support/with_folder.ts";
import type { CleanupReport } from "../engine/data_plane.ts";
import type { BackendMode } from "../proxy/backend.ts";
import { type FindingOptions, type HostFinding, KUBE_PROXY_ALIVE } from "../proxy/host_checks.ts";
import type { BackendTable } from "./dependencies.ts";
import {
  admitStart,
  KubeProxyAliveError,
  KubeProxyHandover,
  takeOverPolicies,
} from "./handover.ts";

const ALIVE: HostFinding = {
  id: KUBE_PROXY_ALIVE,
  severity: "blocking",
  summary: "A kube-proxy runs",
  evidence: ["127.0.0.1:10249/proxyMode says iptables"],
  cure: "turn it off",
};
const LEFT: HostFinding = { ...ALIVE, id: "kube-proxy-leftovers-iptables", severity: "warning" };
const POLICIES: HostFinding = { ...ALIVE, id: "kube-router-policies", severity: "info" };

/** The annotation with which k3s describes its arguments. */
const ANNOTATIONS = { "k3s.io/node-args": '["server"]' };

interface StageOptions {
  readonly takeover?: boolean;
  readonly uid?: number;
  readonly mode?: BackendMode;
  /** @default {one in which nothing can be written} */
  readonly stateDir?: string;
}

/** A machine on which kube-proxy runs as long as `alive`; what is done to it is recorded. */
class Stage {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly asked: string[] = [];
  readonly controller = new AbortController();
  alive = false;
  broken = false;
  /** What no mode can remove. */
  failed: readonly string[] = [];
  annotations: FindingOptions["nodeAnnotations"];
  readonly handover: KubeProxyHandover;
  readonly running: Promise<void>;

  private constructor(
    options: StageOptions,
    configuration: Awaited<ReturnType<typeof configurationOf>>,
  ) {
    const { uid = 0, mode = "userspace" } = options;
    const { clock, logger } = this;
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
    const backends: BackendTable = {
      iptables: (_, { family }) => this.#backend(`rules ${family}`),
      userspace: (_, { family }) => this.#backend(`addresses ${family}`),
    };
    const recheck = () => void this.asked.push("recheck");
    const distrust = (isOn: boolean) => void this.asked.push(`distrust ${isOn}`);
    const edges = testDependencies({ hostChecks, clock, backends, process: { uid } });
    this.handover = new KubeProxyHandover(
      { ...edges, logger, recheck, distrust, nodeAnnotations: () => ANNOTATIONS },
      { ...configuration, mode, families: ["IPv4", "IPv6"] },
    );
    this.running = this.handover.note().then(() => this.handover.run(this.controller.signal));
  }

  static async create(options: StageOptions = {}): Promise<Stage> {
    const { takeover = false, stateDir = "/dev/null/state" } = options;
    const flags = [`--state-dir=${stateDir}`, "--control-socket=/run/t/control.sock"];
    return new Stage(options, await configurationOf([...flags, ...takeover ? ["--takeover"] : []]));
  }

  #backend(what: string) {
    const clean = () => {
      this.asked.push(what);
      return Promise.resolve({ removed: [what], failed: this.failed });
    };
    return new class extends FakeBackend {
      override cleanup = (): Promise<CleanupReport> => clean();
    }("IPv4");
  }

  async serve(): Promise<void> {
    for (const family of ["IPv4", "IPv6"] as const) this.handover.synced(family);
    await this.clock.advance(5_000);
  }

  /** Warnings and errors, without those about the record of modes. */
  get complaints(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn" || level === "error")
      .map(({ message }) => message).filter((message) => !message.includes("record of modes"));
  }
}

Deno.test("KubeProxyHandover removes nothing before each family has synced", async () => {
  const stage = await Stage.create({ takeover: true });
  stage.handover.synced("IPv4");
  stage.handover.synced("IPv4");
  await stage.clock.advance(60_000);
  assertEquals(stage.asked, []);
  await stage.serve();
  await stage.running;
  assertEquals(stage.asked, ["ports", "remove"]);
  assertEquals(stage.complaints, []);
});

Deno.test("KubeProxyHandover takes over at once and again when kube-proxy has ended", async () => {
  const stage = await Stage.create({ takeover: true });
  stage.alive = true;
  const removals = () => stage.asked.filter((what) => what === "remove").length;
  const comparisons = () => stage.asked.filter((what) => what === "recheck").length;
  const doubts = () => stage.asked.filter((what) => what === "distrust true").length;
  await stage.serve();
  await eventually("kube-proxy is asked again", () => stage.clock.pendingTimers > 0);
  await stage.clock.advance(12_000);
  assertEquals(removals(), 1, "no fight with a kube-proxy that runs");
  assertEquals([doubts() > 2, comparisons()], [true, 0], "each mode knows whether to compare");
  assertEquals(stage.handover.pending, true);
  assertEquals(stage.complaints.length, 1);
  stage.alive = false;
  await stage.clock.advance(10_000);
  stage.alive = true;
  await stage.clock.advance(5_000);
  assertEquals(stage.handover.pending, true, "a restart of kube-proxy");
  stage.alive = false;
  await stage.clock.advance(10_000);
  assertEquals(stage.handover.pending, true, "two checks are too few");
  await stage.clock.advance(5_000);
  await stage.running;
  assertEquals(stage.handover.pending, false);
  assertEquals(removals(), 2);
  const last = ["distrust false", "remove", "recheck"];
  assertEquals(stage.asked.slice(-3), last, "it may have written to our chains");
  assertEquals(comparisons(), 1);
});

/** Serves, and lets time pass until the run ends. */
async function ended(stage: Stage): Promise<void> {
  let isOver = false;
  const running = stage.running.finally(() => isOver = true);
  await stage.serve();
  await eventually("the run is over", async () => {
    await stage.clock.advance(5_000);
    return isOver;
  });
  await running;
}

Deno.test("KubeProxyHandover without --takeover warns of leftovers and removes nothing", async () => {
  const stage = await Stage.create();
  assertEquals(stage.handover.pending, false);
  await ended(stage);
  assertEquals(stage.asked, ["everything"]);
  assertEquals(stage.complaints, ["Foreign rules interfere with kube-relay"]);
  assertEquals(stage.logger.lines.at(-1)?.fields.id, LEFT.id);
  assertEquals(stage.annotations, ANNOTATIONS);
});

Deno.test("KubeProxyHandover ends with its signal, wherever it is", async () => {
  for (const takeover of [true, false]) {
    for (const served of [true, false]) {
      const stage = await Stage.create({ takeover });
      stage.alive = true;
      if (served) await stage.serve();
      stage.controller.abort();
      await stage.running;
      assertEquals(stage.clock.pendingTimers, 0);
    }
  }
});

Deno.test("KubeProxyHandover that fails does not end the proxy", async () => {
  const stage = await Stage.create({ takeover: true });
  stage.broken = true;
  await ended(stage);
  assertEquals(stage.complaints, ["Cannot check for leftovers of another mode or kube-proxy"]);
});

/** Runs a mode on a machine with a record of modes. Returns what was removed, and failures. */
async function ran(
  stateDir: string,
  mode: BackendMode,
  { serves = true, failed = [] as readonly string[] } = {},
): Promise<readonly string[]> {
  const stage = await Stage.create({ mode, stateDir, uid: 1000 });
  stage.failed = failed;
  if (serves) await ended(stage);
  else {
    // The record is written before the mode serves.
    const isNoted = async () => (await Deno.readTextFile(`${stateDir}/modes`)).includes(mode);
    await eventually("the mode is noted", isNoted);
    stage.controller.abort();
    await stage.running;
  }
  return [...stage.asked, ...stage.complaints];
}

Deno.test("KubeProxyHandover cleans up after a mode that has run before, once", () =>
  withFolder(async (folder) => {
    assertEquals(await ran(folder, "iptables"), [], "nothing else has run");
    assertEquals(await ran(folder, "iptables"), []);
    assertEquals(await ran(folder, "userspace"), ["rules IPv4", "rules IPv6"]);
    assertEquals(await ran(folder, "userspace"), []);
    assertEquals(await ran(folder, "iptables"), ["addresses IPv4", "addresses IPv6"]);
  }));

Deno.test("KubeProxyHandover remembers a mode that never served", () =>
  withFolder(async (folder) => {
    await ran(folder, "iptables");
    assertEquals(await ran(folder, "userspace", { serves: false }), []);
    assertEquals(await ran(folder, "iptables"), ["addresses IPv4", "addresses IPv6"]);
  }));

Deno.test("KubeProxyHandover retries failed removals at the next start", () =>
  withFolder(async (folder) => {
    await ran(folder, "iptables");
    const complaint = "Cannot remove objects of another mode";
    const both = ["rules IPv4", "rules IPv6"];
    const failing = await ran(folder, "userspace", { failed: ["a chain"] });
    assertEquals(failing, [...both, complaint, complaint]);
    assertEquals(await ran(folder, "userspace"), both);
  }));

/** The warnings about the record, without what they advise. */
function warningsOf({ logger }: Stage): readonly string[] {
  return logger.lines.filter(({ level }) => level === "warn")
    .map(({ message }) => message.split(";")[0]!);
}

Deno.test("KubeProxyHandover does not replace a record of modes that it cannot read", () =>
  withFolder(async (folder) => {
    const record = `${folder}/modes`;
    await Deno.writeTextFile(record, "iptables\n");
    const { readTextFile } = Deno;
    Deno.readTextFile = (path, options) =>
      path === record
        ? Promise.reject(new Error("Too many open files"))
        : readTextFile(path, options);
    try {
      const stage = await Stage.create({ stateDir: folder, uid: 1000 });
      await ended(stage);
      const warning = "Cannot read the record of modes";
      assertEquals([stage.asked, warningsOf(stage)], [[], [warning, warning]]);
    } finally {
      Deno.readTextFile = readTextFile;
    }
    assertEquals(await Deno.readTextFile(record), "iptables\n");
  }));

async function admit(
  { findings = [ALIVE], uid = 0, manifests = [], takeover = false }: {
    readonly findings?: readonly HostFinding[];
    readonly uid?: number;
    readonly manifests?: readonly string[];
    readonly takeover?: boolean;
  },
): Promise<string[]> {
  const logger = new MemoryLogger();
  const hostChecks = fakeHostChecks({ findings });
  const { signal } = new AbortController();
  await admitStart({ hostChecks, process: { uid }, logger }, { manifests, takeover }, signal);
  return logger.lines.map(({ level, message }) => `${level} ${message}`);
}

Deno.test("admitStart() refuses next to a live kube-proxy, and says where it is and how it goes", async () => {
  assertEquals(await admit({ findings: [] }), []);
  for (const start of [{}, { uid: 1000 }, { manifests: ["m"] }]) {
    const { message } = await assertRejects(() => admit(start), KubeProxyAliveError);
    assertStringIncludes(message, "127.0.0.1:10249/proxyMode says iptables");
    assertStringIncludes(message, "; turn it off");
  }
});

Deno.test("admitStart() continues with --takeover, and for a plain user's manifests", async () => {
  assertEquals(await admit({ takeover: true }), [
    "warn A kube-proxy runs on this node; it is taken over from once Services work here",
  ]);
  assertEquals(await admit({ uid: 1000, manifests: ["m"] }), [
    "warn A kube-proxy runs on this node; kube-relay serves Services next to it",
  ]);
});

Deno.test("takeOverPolicies() logs removals and failures, and ends with the signal", async () => {
  const takeOver = async (report: CleanupReport | Error, controller = new AbortController()) => {
    const logger = new MemoryLogger();
    const removeKubeRouterPolicies = () =>
      report instanceof Error ? Promise.reject(report) : Promise.resolve(report);
    const edges = { hostChecks: { removeKubeRouterPolicies }, logger };
    await takeOverPolicies(edges, controller.signal);
    return logger.lines.map(({ level, fields }) => `${level} ${fields.what ?? fields.things}`);
  };
  const report = { removed: ["chain X"], failed: ["ipset X: in use"], kept: ["chain Y"] };
  assertEquals(await takeOver(report), [
    "verbose chain X",
    "info chain Y",
    "warn ipset X: in use",
    "info 1",
  ]);
  assertEquals(await takeOver(new Error("broken")), ["error undefined"]);
  const controller = new AbortController();
  controller.abort();
  await assertRejects(() => takeOver(new Error("aborted"), controller), DOMException);
});
