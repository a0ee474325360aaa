import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { writeKubeconfig } from "../../../tests/support/builders/kubeconfig_file.ts";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import { FakeApiServer } from "../../../tests/support/fakes/fake_api_server.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  type CommandAnswer,
  FakeCommandRunner,
} from "../../../tests/support/fakes/fake_command_runner.ts";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { systemClock } from "../../os/clock.ts";
import { CommandError } from "../../os/command_runner.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { FindingOptions } from "../../proxy/host_checks.ts";
import { runCommandLine } from "../cli/command_line.ts";
import { startControlServer } from "../control/control_server.ts";
import type { BackendTable, Dependencies } from "../../app/dependencies.ts";
import type { RoutingBackends } from "../../app/routing/routing_backends.ts";
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
  /** The mask of `/proc/self/status`. @default {CAP_NET_ADMIN alone} */
  readonly capabilities?: string;
  /** Addresses by the names of their interfaces. */
  readonly addresses?: Readonly<Record<string, string>>;
  /** Whether the BGP daemon answers. @default {it is not asked} */
  readonly daemon?: "answers" | "silent";
  /** Answers of further commands. */
  readonly answers?: Readonly<Record<string, CommandAnswer | (() => CommandAnswer)>>;
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
  const { addresses = {}, daemon, answers = {} } = machine;
  const commands = new FakeCommandRunner()
    .on("cat /proc/self/status", { stdout: `CapEff:\t${machine.capabilities ?? "1000"}\n` })
    .on("cat /proc/sys/net/ipv4/ip_local_port_range", { stdout: machine.ports ?? "32768\t60999" })
    .on("sysctl net.bridge", { stdout });
  for (const [line, answer] of Object.entries(answers)) commands.on(line, answer);
  const network = new FakeNetwork();
  network.interfaceAddresses = () =>
    Object.entries(addresses).map(([address, interfaceName]) => ({
      address: parseIpAddress(address),
      interfaceName,
      network: parseCidr(`${address}/24`),
    }));
  const dependencies = testDependencies({
    ...{ clock, network, commands, backends },
    ...(daemon !== undefined && { routingBackends: fakeDaemon(daemon) }),
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

Deno.test("doctor knows the capabilities of started tools, or that they are not known", () =>
  withFolder(async (folder) => {
    const cases: readonly [mask: string, names: readonly string[] | undefined][] = [
      [
        "000001ffffffffff",
        ["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW", "SYS_MODULE", "SYS_ADMIN", "SYS_RESOURCE"],
      ],
      ["0000000000000000", []],
      ["0000000000001400", ["NET_BIND_SERVICE", "NET_ADMIN"]],
      ["zz", undefined],
    ];
    for (const [capabilities, names] of cases) {
      const { report } = await doctor(folder, ["--mode=auto"], { capabilities });
      assertEquals(report.machine.capabilities, names?.map((name) => `CAP_${name}`));
    }
  }));

function fakeDaemon(daemon: "answers" | "silent"): RoutingBackends {
  return {
    bgp: () => ({
      sentPrefixes: () =>
        daemon === "answers" ? Promise.resolve(new Map()) : Promise.reject(new Error("no socket")),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    }),
  } as unknown as RoutingBackends;
}

const POOL = ["--routing", "--load-balancer-pools=192.0.2.0/28"];
const POOL6 = ["--routing", "--load-balancer-pools=2001:db8::/120"];

/** Tools of layer 2 that are not installed. */
const NO_TOOLS = Object.fromEntries(["arping", "ndisc6"].map((tool) => [`${tool} -V`, () => {
  throw new CommandError(tool, ["-V"], "not-found", `${tool} is not installed`);
}]));
const LINKS = { "192.0.2.17": "eth0", "198.51.100.1": "eth1" };
const ARP = "warning layer2-arp: net.ipv4.conf.eth0.arp_ignore is 0";

function arpIgnore(value: number) {
  const stdout = `net.ipv4.conf.all.arp_ignore = 0\nnet.ipv4.conf.eth0.arp_ignore = ${value}\n`;
  return { "sysctl net.ipv4.conf.all": { stdout } };
}

/** What `doctor` finds about routing. */
const ROUTING: readonly (readonly [string, readonly string[], Machine, readonly string[]])[] = [
  ["nothing without --routing", [], { daemon: "silent" }, []],
  ["nothing on a machine that has everything", POOL, {}, []],
  ["no pools", ["--routing"], {}, ["info routing-no-pools: routing.pools is empty"]],
  ["the tools that are missing for pools of IPv4", POOL, { answers: NO_TOOLS }, [
    "warning layer2-tools: arping, which sends gratuitous ARP: arping is not installed",
  ]],
  ["the tools that are missing for pools of IPv6", POOL6, { answers: NO_TOOLS }, [
    "warning layer2-tools: ndisc6, which sends neighbour solicitations: ndisc6 is not installed",
  ]],
  ["missing capabilities", POOL, { capabilities: "1000" }, [
    "warning layer2-capabilities: tools are started without CAP_NET_RAW",
  ]],
  ["nothing about capabilities that are not known", POOL, { capabilities: "zz" }, []],
  ["where every node would answer ARP", [...POOL, "--mode=ipvs"], { answers: arpIgnore(0) }, [ARP]],
  ["a kernel that answers ARP as it should", [...POOL, "--mode=ipvs"], {
    answers: arpIgnore(1),
  }, []],
  ["strict ARP", [...POOL, "--mode=ipvs", "--ipvs-strict-arp"], { answers: arpIgnore(0) }, []],
  [
    "pools that have addresses of the machine, pods or Services",
    [
      ...["--routing", "--load-balancer-pools=a=192.0.2.0/27,b=10.244.3.0/24,c=10.96.200.1"],
      ...["--cluster-cidr=10.244.0.0/16", "--service-cidr=10.96.0.0/16"],
    ],
    { addresses: { "192.0.2.3": "eth0", "192.0.2.4": "kube-ipvs0" } },
    [
      "warning pool-overlaps-range: pool 'b' has addresses of 10.244.0.0/16, a range of pods; " +
      "pool 'c' has addresses of 10.96.0.0/16, a range of cluster IPs",
      "info pool-node-address: pool 'a' has 192.0.2.3 of eth0",
    ],
  ],
  ["a BGP daemon that answers", [...POOL, "--bgp"], { daemon: "answers" }, []],
  ["a BGP daemon that does not answer", [...POOL, "--bgp"], { daemon: "silent" }, [
    "warning bgp-daemon: no socket",
  ]],
  ["nothing about a BGP daemon that is not used", POOL, { daemon: "silent" }, []],
];

for (const [what, argv, machine, expected] of ROUTING) {
  Deno.test(`doctor reports ${what}`, () =>
    withFolder(async (folder) => {
      const { report: { findings } } = await doctor(folder, ["--mode=auto", ...argv], {
        ...{ addresses: LINKS, capabilities: "3000", ...machine },
        backends: { ...BACKENDS, ipvs: BACKENDS.iptables! },
        answers: { "arping -V": {}, "ndisc6 -V": {}, ...machine.answers },
      });
      const found = findings.filter(({ id }) => id !== "external-ips");
      assertEquals(
        found.map(({ severity, id, evidence }) => `${severity} ${id}: ${evidence.join("; ")}`),
        expected,
      );
    }));
}

Deno.test("doctor asks about other software with the intent of --routing", () =>
  withFolder(async (folder) => {
    const intentOf = async (...argv: readonly string[]) => {
      let intent: FindingOptions["routing"];
      const answers = { "arping -V": {} };
      const onFindings = ({ routing }: FindingOptions) => void (intent = routing);
      await doctor(folder, ["--mode=auto", ...argv], { onFindings, answers });
      return intent;
    };
    assertEquals(await intentOf(), undefined);
    assertEquals(await intentOf("--routing"), { assignsByDefault: false });
    assertEquals(await intentOf(...POOL, "--bgp", "--bgp-control-socket=/x"), {
      assignsByDefault: true,
      bgpSocket: "/x",
    });
  }));

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
