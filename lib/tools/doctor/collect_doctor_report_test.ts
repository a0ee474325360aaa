import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { writeKubeconfig } from "../../../tests/support/builders/kubeconfig_file.ts";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import { FakeApiServer } from "../../../tests/support/fakes/fake_api_server.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { systemClock } from "../../os/clock.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { FindingOptions } from "../../proxy/host_checks.ts";
import { runCommandLine } from "../cli/command_line.ts";
import { startControlServer } from "../control/control_server.ts";
import type { BackendTable, Dependencies } from "../../app/dependencies.ts";
import { toolCapabilities } from "./collect_doctor_report.ts";
import type { DoctorReport } from "./doctor_report.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";

/** A build that has these modes; none is made, as no test has the userspace mode among them. */
const BACKENDS: BackendTable = Object.fromEntries(
  ["iptables", "nftables"].map((mode) => [mode, () => {
    throw new Error("Unexpected backend");
  }]),
);

/** The annotation with which k3s describes its arguments at its Node. */
const K3S = { "k3s.io/node-args": '["server"]' };

interface Machine extends FakeHost {
  readonly env?: Readonly<Record<string, string>>;
  readonly clock?: Dependencies["clock"];
  /** The output of `sysctl` for the settings of bridges. @default {there are none} */
  readonly bridges?: string;
  /** The ports that the kernel gives to sockets. @default {"32768\t60999"} */
  readonly ports?: string;
  /** Receives the modes that were probed. */
  readonly asked?: BackendMode[];
  /** @default {BACKENDS} */
  readonly backends?: BackendTable;
}

interface Run {
  readonly code: number;
  readonly report: DoctorReport;
  readonly text: string;
}

/** Runs the verb with its control socket in a folder of the test's own. */
async function doctor(
  folder: string,
  argv: readonly string[],
  machine: Machine = {},
): Promise<Run> {
  const texts = { out: "", err: "" };
  const { env = {}, clock = new FakeClock(), bridges: stdout = "", backends = BACKENDS } = machine;
  const dependencies = testDependencies({
    clock,
    network: new FakeNetwork(),
    commands: new FakeCommandRunner()
      .on("cat /proc/self/status", { stdout: "CapEff:\t1000\n" })
      .on("cat /proc/sys/net/ipv4/ip_local_port_range", { stdout: machine.ports ?? "32768\t60999" })
      .on("sysctl net.bridge", { stdout }),
    backends,
    hostChecks: fakeHostChecks(machine, machine.asked),
    process: {
      ...{ uid: 1000, hostname: "node-a", kernelRelease: "6.1.0" },
      env: (name) => env[name],
    },
    print: (text) => void (texts.out += text),
    complain: (text) => void (texts.err += text),
  });
  const line = ["doctor", "--json", ...argv, `--control-socket=${folder}/c.sock`];
  const { signal } = new AbortController();
  const code = await runCommandLine(dependencies, [...line, `--state-dir=${folder}`], () => signal);
  assertEquals(texts.err, "");
  return { code, report: JSON.parse(texts.out) as DoctorReport, text: texts.out };
}

Deno.test("doctor exits with 0 if kube-relay can run here", () =>
  withFolder(async (folder) => {
    const { code, report } = await doctor(folder, ["--mode=auto"]);
    assertEquals([code, report.choice.mode, report.findings], [0, "nftables", []]);
    assertEquals(report.machine, {
      hostname: "node-a",
      kernel: "6.1.0",
      uid: 1000,
      capabilities: ["CAP_NET_ADMIN"],
      toolsPath: [],
    });
    assertEquals([report.api.state, report.relay.state], ["not configured", "not running"]);
  }));

Deno.test("doctor exits with 1 for an unavailable mode and for a blocking finding", () =>
  withFolder(async (folder) => {
    const probes = { nftables: [missingFeature("nft")] };
    const wanted = await doctor(folder, ["--mode=nftables"], { probes });
    assertEquals([wanted.code, wanted.report.choice.mode], [1, undefined]);
    assertStringIncludes(wanted.report.findings[0]!.evidence[0]!, "nft: no nft (get nft)");
    const findings = [
      { id: "a", severity: "info", summary: "a", evidence: [] },
      { id: "b", severity: "blocking", summary: "b", evidence: [] },
    ] as const;
    const blocked = await doctor(folder, ["--mode=auto"], { findings });
    assertEquals([blocked.code, blocked.report.findings.map(({ id }) => id)], [1, ["b", "a"]]);
  }));

Deno.test("doctor reports the modes that auto skips, with the reasons", () =>
  withFolder(async (folder) => {
    const probes = { nftables: [missingFeature("nft")] };
    const { report } = await doctor(folder, ["--mode=auto"], { probes });
    assertEquals(report.choice, {
      request: "auto",
      mode: "iptables",
      reasons: ["nftables: nft: no nft (get nft)"],
    });
    assertEquals(report.modes.map(({ mode, inRelease }) => [mode, inRelease]), [
      ["nftables", true],
      ["iptables", true],
      ["ipvs", false],
      ["userspace", false],
    ]);
  }));

Deno.test("doctor reports folders of --tools-path that are not searched", () =>
  withFolder(async (folder) => {
    const argv = ["--mode=auto", "--tools-path=/opt/tools"];
    const env = { PATH: "/usr/bin" };
    const { code, report } = await doctor(folder, argv, { env });
    assertEquals([code, report.findings.map(({ id }) => id)], [0, ["tools-path"]]);
    const right = await doctor(folder, argv, { env: { PATH: "/opt/tools:/usr/bin" } });
    assertEquals(right.report.findings, []);
  }));

Deno.test("doctor reports a kubeconfig that cannot be read, or that every user can read", () =>
  withFolder(async (folder) => {
    const file = `${folder}/kubeconfig`;
    const missing = await doctor(folder, ["--mode=auto", `--kubeconfig=${file}`]);
    assertEquals([missing.code, missing.report.api.state], [1, "unusable"]);
    const text = {
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      // No program listens on the discard port.
      clusters: [{ name: "c", cluster: { server: "http://127.0.0.1:9" } }],
      users: [{ name: "u", user: { token: "secret-of-the-test" } }],
    };
    await Deno.writeTextFile(file, JSON.stringify(text), { mode: 0o644 });
    const open = await doctor(folder, ["--mode=auto", `--kubeconfig=${file}`], {
      clock: systemClock,
    });
    assertEquals([open.code, open.report.api.state], [0, "unreachable"]);
    assertEquals(open.report.findings.map(({ id }) => id), ["api-unreachable", "api-credentials"]);
    assertEquals(open.report.findings[1]!.cure, `chmod 600 ${file}`);
    assert(!open.text.includes("secret-of-the-test"), open.text);
  }));

Deno.test("doctor reads of the own Node how k3s was started", () =>
  withFolder(async (folder) => {
    await using fake = await FakeApiServer.start();
    const node = {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "node-a", annotations: { ...K3S, other: "1" } },
    };
    fake.store.create(node);
    const file = `${folder}/kubeconfig`;
    const user = { token: fake.rotateToken() };
    await writeKubeconfig(file, { server: fake.url, ca: fake.ca, user });
    const asked: FindingOptions[] = [];
    const machine = {
      clock: systemClock,
      onFindings: (options: FindingOptions) => asked.push(options),
    };
    const argv = ["--mode=auto", `--kubeconfig=${file}`];
    const { report } = await doctor(folder, argv, machine);
    assertEquals([report.api.state, asked.at(-1)?.nodeAnnotations], ["answers", K3S]);
    fake.setMissing("/api/v1/nodes/node-a", 403);
    const refused = await doctor(folder, argv, machine);
    assertEquals([refused.code, refused.report.api.state, refused.report.findings], [
      0,
      "answers",
      [],
    ]);
    assertEquals(asked.at(-1)?.nodeAnnotations, undefined);
  }));

Deno.test("doctor reports the obstacles to --network-policy", () =>
  withFolder(async (folder) => {
    await using fake = await FakeApiServer.start();
    const [file, policyFile] = [`${folder}/kubeconfig`, `${folder}/policies`];
    const user = { token: fake.rotateToken() };
    await writeKubeconfig(file, { server: fake.url, ca: fake.ca, user });
    fake.setMissing("/api/v1/pods", 403);
    const argv = ["--mode=auto", `--kubeconfig=${file}`];
    const machine = { clock: systemClock };
    assertEquals(
      (await doctor(folder, argv, machine)).report.findings,
      [],
      "no finding without the flag",
    );
    const { code, report } = await doctor(folder, [...argv, "--network-policy"], machine);
    assertEquals(code, 0);
    const [bridge, access] = report.findings;
    assertEquals([bridge?.id, access?.id], ["bridge-netfilter", "policy-access"]);
    assertStringIncludes(bridge!.cure!, "modprobe br_netfilter");
    assertEquals(access!.evidence, [
      `no right to list pods, watch pods, by token of ${file}`,
      "missing rule: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: " +
      "{name: kube-relay-network-policy}, rules: [{apiGroups: [''], resources: [pods], verbs: " +
      "[list, watch]}]}",
    ]);
    const flags = ["--network-policy", `--policy-kubeconfig=${policyFile}`];
    const set = "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n";
    const lost = await doctor(folder, [...argv, ...flags], { ...machine, bridges: set });
    assertEquals(lost.report.findings.map(({ id }) => id), ["policy-access-unknown"]);
    const off = set.replaceAll("1\n", "0\n");
    fake.setMissing("/api/v1/pods", undefined);
    const settable = await doctor(folder, [...argv, flags[0]!], { ...machine, bridges: off });
    assertEquals(settable.report.findings.map(({ id, severity }) => [id, severity]), [
      ["bridge-netfilter", "info"],
    ]);
    const probes = {
      nftables: [missingFeature("nft")],
      iptables: [missingFeature("ipset")],
    };
    const lacking = { ...machine, bridges: set, probes };
    const probed: BackendMode[] = [];
    const named = await doctor(folder, [...argv, ...flags.slice(0, 1)], {
      ...lacking,
      asked: probed,
    });
    assertEquals(probed.toSorted(), [...new Set(probed)].sort(), "no mode is probed twice");
    const found = named.report.findings.filter(({ id }) => id !== "no-mode");
    assertEquals(found.map(({ id, evidence }) => [id, ...evidence]), [
      ["policy-tool", "nftables: nft: no nft (get nft)"],
    ]);
    const relaying = ["--mode=userspace", `--kubeconfig=${file}`, "--network-policy"];
    const { report: { findings } } = await doctor(folder, relaying, {
      ...lacking,
      backends: { userspace: (_, { family }) => new FakeBackend(family) },
    });
    const byId = new Map(findings.map((finding) => [finding.id, finding]));
    assertStringIncludes(
      byId.get("policy-tool")?.summary ?? "",
      "would not cover direct pod-to-pod traffic",
    );
    assertStringIncludes(
      byId.get("userspace-source-address")?.evidence[0] ?? "",
      "only kube-relay judges relayed connections by the client",
    );
  }));

Deno.test("doctor compares the source ports of this machine with the limits of userspace mode", () =>
  withFolder(async (folder) => {
    const found = async (ports: string, ...argv: readonly string[]) => {
      const backends: BackendTable = { userspace: (_, { family }) => new FakeBackend(family) };
      const machine = { ports, backends };
      const { report } = await doctor(folder, ["--mode=userspace", ...argv], machine);
      const finding = report.findings.find(({ id }) => id === "userspace-ports");
      return finding && [...finding.evidence, finding.cure].join("\n");
    };
    assertEquals(await found("32768\t60999\n"), undefined);
    assertEquals(await found("?"), undefined);
    const few = await found("40000\t43999\n") ?? "";
    assertStringIncludes(few, "4000 ports: all UDP flows together may use 3000");
    assertStringIncludes(few, "--max-connections-per-service is 10000");
    assertStringIncludes(few, "sysctl -w net.ipv4.ip_local_port_range=");
    const most = "--max-connections-per-service=3000";
    assertEquals(await found("40000\t43999\n", most), undefined);
  }));

Deno.test("doctor reports how a running kube-relay does", () =>
  withFolder(async (folder) => {
    const status = testStatusReport({
      pid: 42,
      node: { name: "node-a", annotations: K3S },
      hostSettings: [
        { name: "net.a", wanted: "1", found: "1", state: "kept", purpose: "be a test" },
        {
          ...{ name: "net.b", wanted: "1", found: "0", state: "refused", purpose: "be a test" },
          ...{ reason: "read-only", cure: "sysctl -w net.b=1" },
        },
      ],
      sources: [{ name: "API", state: "not connected", problems: ["no route"] }],
      families: [testStatusFamily({ failures: 2, lastError: "it broke" })],
    });
    const path = `${folder}/c.sock`;
    const server = await startControlServer({
      path,
      routes: { "/status": () => Promise.resolve(status) },
    });
    try {
      const asked: FindingOptions[] = [];
      const { code, report } = await doctor(folder, ["--mode=auto"], {
        clock: systemClock,
        onFindings: (options) => asked.push(options),
      });
      assertEquals(code, 0);
      assertEquals(asked.at(-1)?.nodeAnnotations, K3S);
      assertEquals(report.relay, {
        state: "running",
        detail: "v0.1.0, process 42, serving, mode userspace",
        mode: "userspace",
      });
      assertEquals(report.findings.map(({ id, evidence }) => [id, ...evidence]), [
        [
          "relay-settings",
          "net.b is 0, not 1: read-only; where that is allowed: sysctl -w net.b=1",
        ],
        ["relay-syncs-fail", "IPv4: 2 syncs failed: it broke"],
        ["relay-sources", "API: no route"],
      ]);
    } finally {
      await server.stop();
    }
  }));

function saying(stdout: string): FakeCommandRunner {
  return new FakeCommandRunner().on("cat /proc/self/status", { stdout });
}

Deno.test("toolCapabilities() reads the effective mask", async () => {
  const all = [
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_SYS_MODULE",
    "CAP_SYS_ADMIN",
    "CAP_SYS_RESOURCE",
  ];
  const cases: readonly [mask: string, names: readonly string[]][] = [
    ["000001ffffffffff", all],
    ["0000000000000000", []],
    ["0000000000001400", ["CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN"]],
  ];
  for (const [mask, names] of cases) {
    const commands = saying(`Name:\tcat\nCapPrm:\t0\nCapEff:\t${mask}\nCapBnd:\t0\n`);
    assertEquals(await toolCapabilities({ commands }), names, mask);
  }
});

Deno.test("toolCapabilities() is undefined if the capabilities are unknown", async () => {
  assertEquals(await toolCapabilities({ commands: saying("rubbish\x00") }), undefined);
  assertEquals(await toolCapabilities({ commands: saying("CapEff:\tzz\n") }), undefined);
  for (const failure of ["not-found", "not-permitted", "timeout", "failed"] as const) {
    const commands = saying("").failNext(failure);
    assertEquals(await toolCapabilities({ commands }), undefined, failure);
  }
});

Deno.test("doctor reports flags of the running process that cannot be used, and checks a start without", () =>
  withFolder(async (folder) => {
    const config = `${folder}/none.yaml`;
    const server = await startControlServer({
      path: `${folder}/c.sock`,
      routes: { "/flags": () => Promise.resolve({ config }) },
    });
    const { report } = await doctor(folder, []);
    await server.stop();
    assertEquals(report.configuredBy, "a start without flags");
    const found = report.findings.find(({ id }) => id === "flags-in-use");
    assertStringIncludes(found?.evidence[0] ?? "", `the running process: `);
    assertStringIncludes(found?.evidence[0] ?? "", config);
  }));
