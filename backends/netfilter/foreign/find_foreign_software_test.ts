import { assertEquals, assertStringIncludes } from "@std/assert";
import type { FindingOptions } from "../../../lib/proxy/host_checks.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { findForeignSoftware } from "./find_foreign_software.ts";

/** What the tools of a machine print; it has iptables-nft, and iptables-legacy if that has chains. */
interface Machine {
  /** Chains of IPv4 as `table chain`, each with one rule. */
  readonly nft?: readonly string[];
  readonly legacy?: readonly string[];
  readonly tables?: readonly string[];
  readonly sets?: readonly string[];
  readonly devices?: readonly string[];
  /** Lines of `ss`. */
  readonly programs?: readonly string[];
  /** The arguments of k3s. */
  readonly k3s?: readonly string[];
  readonly refused?: string;
}

function saved(chains: readonly string[]): string {
  const tables = Map.groupBy(chains, (each) => each.split(" ")[0]!);
  return [...tables].map(([table, names]) => {
    const lines = names.map((each) => each.split(" ")[1]!);
    return `*${table}\n${lines.map((name) => `:${name} - [0:0]\n`).join("")}${
      lines.map((name) => `-A ${name} -j RETURN\n`).join("")
    }COMMIT\n`;
  }).join("");
}

async function findings(machine: Machine, options: FindingOptions = {}) {
  const { nft = [], legacy = [], tables = [], sets = [], devices = [], programs = [] } = machine;
  const missing = { code: 127, stderr: "not found" };
  const commands = new FakeCommandRunner()
    .on("cat", { code: 1, stderr: "cat: No such file or directory" })
    .on("cat /proc/net/ip_tables_names", { stdout: legacy.length > 0 ? "nat\n" : "" })
    .on("ip6tables", missing).on("iptables", missing)
    .on("iptables-restore --version", { stdout: "iptables-restore v1.8.9 (nf_tables)\n" })
    .on("iptables-save", { stdout: saved(nft) })
    .on("iptables-legacy-restore --version", { stdout: "iptables-restore v1.8.9 (legacy)\n" })
    .on("iptables-legacy-save", { stdout: saved(legacy) })
    .on("nft list flowtables", {
      stdout: tables.map((table) => `table ${table} {\n}\n`).join(""),
    })
    .on("ipset list -n", { stdout: sets.map((set) => `${set}\n`).join("") })
    .on("ip -o link", {
      stdout: devices.map((name, index) => `${index + 1}: ${name}: <NOARP>\n`).join(""),
    })
    .on("ss", { stdout: programs.join("\n") });
  if (machine.refused) commands.on(machine.refused, { code: 1, stderr: "it broke" });
  const network = new FakeNetwork();
  for (const address of ["127.0.0.1:10249", "127.0.0.1:10256", "[::1]:10249", "[::1]:10256"]) {
    network.answers.set(address, "refuse");
  }
  const found = await findForeignSoftware(
    { commands, clock: new FakeClock(), network, uid: 0 },
    {
      ...options,
      ...(machine.k3s && { nodeAnnotations: { "k3s.io/node-args": JSON.stringify(machine.k3s) } }),
    },
  );
  for (const { summary, evidence, id } of found) {
    assertEquals([summary.endsWith("."), evidence.length > 0], [false, true], id);
  }
  return found;
}

const SVC = "nat KUBE-SVC-AAAAAAAAAAAAAAAA";
const OTHER_ENFORCERS = ["ip calico", "inet kube-network-policies"];
const POLICIES = { networkPolicy: true };
const OFF = ["server", "--disable-kube-proxy", "--disable", "traefik,servicelb"];
const LEFT = ["iptables", "nftables", "ipvs"].map((mode) => `warning kube-proxy-leftovers-${mode}`);
const SOCKET = "/run/kube-relay-bird/bird.ctl";
const ROUTING = { routing: { assignsByDefault: true, bgpSocket: SOCKET } };
const BIRD = 'u_str LISTEN 0 128 /run/kube-relay-bird/bird.ctl 1 * 0 users:(("bird",pid=1,fd=3))';

function listens(name: string, pid: number, address: string): string {
  return `tcp LISTEN 0 128 ${address} 0.0.0.0:* users:(("${name}",pid=${pid},fd=3))`;
}

const CASES: readonly (readonly [string, Machine, FindingOptions, readonly string[]])[] = [
  ["nothing", {}, {}, []],
  ["chains of kubelet", { nft: ["filter KUBE-FIREWALL", "nat KUBE-MARK-DROP"] }, {}, []],
  [
    "rules of all modes",
    { nft: [SVC], tables: ["ip kube-proxy"], devices: ["kube-ipvs0"], sets: ["KUBE-IPVS-IPS"] },
    {},
    LEFT,
  ],
  ["what ipvs mode keeps", { nft: [SVC], devices: ["kube-ipvs0"] }, { mode: "ipvs" }, []],
  ["what iptables mode keeps", { nft: [SVC], sets: ["KUBE-6-IPVS-IPS"] }, { mode: "iptables" }, [
    LEFT[2]!,
  ]],
  [
    "chains of ipvs mode next to iptables mode",
    { nft: ["filter KUBE-IPVS-FILTER"] },
    { mode: "iptables" },
    [LEFT[0]!],
  ],
  ["rules that userspace mode does not use", { nft: [SVC] }, { mode: "userspace" }, [LEFT[0]!]],
  ["a k3s server with kube-proxy", { k3s: ["server"] }, {}, ["warning k3s-kube-proxy-on"]],
  ["a switch that is off", { k3s: ["server", "--disable-kube-proxy=false"] }, {}, [
    "warning k3s-kube-proxy-on",
  ]],
  ["a switch with a value", { k3s: ["server", "--disable-kube-proxy", "true", "-c", "x"] }, {}, []],
  ["a k3s agent, whose server decides", { k3s: ["agent"] }, {}, []],
  ["another verb of k3s", { k3s: ["etcd-snapshot"] }, {}, []],
  [
    "host ports of k3s",
    { k3s: ["server", "--disable-kube-proxy"], nft: ["nat CNI-HOSTPORT-DNAT"] },
    {},
    ["info klipper-service-lb"],
  ],
  ["host ports without ServiceLB", { k3s: OFF, nft: ["nat CNI-HOSTPORT-DNAT"] }, {}, []],
  ["ServiceLB where kube-relay assigns addresses", { k3s: OFF.slice(0, 2) }, ROUTING, [
    "warning klipper-service-lb",
  ]],
  ["an agent where kube-relay assigns addresses", { k3s: ["agent"] }, ROUTING, []],
  ["kube-relay without ServiceLB", { k3s: OFF }, ROUTING, []],
  [
    "k3s's network policies",
    { sets: ["KUBE-SRC-AAAAAAAAAAAAAAAA"], nft: ["filter KUBE-ROUTER-INPUT"] },
    {},
    ["info kube-router-policies"],
  ],
  [
    "network policies that k3s is configured to leave",
    { nft: ["filter KUBE-POD-FW-AAAAAAAAAAAAAAAA"], k3s: [...OFF, "--disable-network-policy"] },
    {},
    ["warning kube-router-policies"],
  ],
  [
    "other enforcers, where kube-relay enforces no policies",
    { tables: OTHER_ENFORCERS, sets: ["cali40s:x", "cali60all"], nft: ["filter CILIUM_INPUT"] },
    { mode: "iptables" },
    ["info calico-policies", "info cilium-policies", "info kube-network-policies"],
  ],
  [
    "other enforcers, where kube-relay enforces policies too",
    {
      tables: [...OTHER_ENFORCERS, "ip6 kube-router-filter-ipv6"],
      nft: ["filter cali-INPUT", "filter OLD_CILIUM_INPUT"],
    },
    POLICIES,
    ["kube-router-policies", "calico-policies", "cilium-policies", "kube-network-policies"].map(
      (id) => `warning ${id}`,
    ),
  ],
  [
    "tables of another name or family",
    { tables: ["inet calico", "ip kube-network-policies", "ip kube-router-filter-ipv6"] },
    {},
    [],
  ],
  ["kube-router's service proxy", { devices: ["kube-dummy-if"] }, {}, [
    "warning kube-router-service-proxy",
  ]],
  ["kube-router's service proxy by its sets", { sets: ["kube-router-svip"] }, {}, [
    "warning kube-router-service-proxy",
  ]],
  ["two iptables worlds", { nft: ["nat A"], legacy: ["nat KUBE-IPTABLES-HINT"] }, {}, [
    "warning two-iptables-worlds",
  ]],
  ["rules of kube-relay in another mode", { tables: ["ip kube-relay"] }, {}, [
    "warning kube-relay-other-mode",
  ]],
  ["its own tables", { tables: ["ip kube-relay"] }, { mode: "nftables" }, []],
  [
    "its own rules of policies, and what it masquerades and traces",
    {
      tables: ["ip kube-relay-policy", "inet kube-relay-pods", "ip kube-relay-trace-7-a"],
      nft: ["filter KUBE-RELAY-POLICY"],
    },
    POLICIES,
    [],
  ],
  [
    "rules of policies that nothing updates",
    { tables: ["ip kube-relay-policy"] },
    { mode: "nftables" },
    ["warning kube-relay-policies-left"],
  ],
  [
    "rules of policies in iptables that nothing updates",
    { nft: ["filter KUBE-RELAY-POLICY"] },
    { mode: "iptables" },
    ["warning kube-relay-policies-left"],
  ],
  ["less than all", { refused: "ipset" }, {}, ["info not-looked-at"]],
  ["programs that cannot be listed", { refused: "ss" }, ROUTING, ["info not-looked-at"]],
  [
    "programs that announce addresses, if kube-relay does too",
    {
      programs: [
        listens("speaker", 7, "0.0.0.0:7472"),
        listens("kube-vip", 8, "[::]:2112"),
        listens("sshd", 9, "0.0.0.0:22"),
      ],
    },
    ROUTING,
    ["warning metallb", "warning kube-vip"],
  ],
  ["its own BIRD", { programs: [listens("bird", 1, "0.0.0.0:179"), BIRD] }, ROUTING, []],
  ["another BGP daemon", { programs: [listens("bird", 2, "0.0.0.0:179"), BIRD] }, ROUTING, [
    "blocking bgp-port",
  ]],
  [
    "another BGP daemon, which does not matter without BGP",
    { programs: [listens("bird", 2, "0.0.0.0:179")] },
    { routing: { assignsByDefault: true } },
    [],
  ],
];

for (const [what, machine, options, expected] of CASES) {
  Deno.test(`findForeignSoftware() reports ${what}`, async () => {
    const found = await findings(machine, options);
    assertEquals(found.map(({ severity, id }) => `${severity} ${id}`), expected);
  });
}

Deno.test("findForeignSoftware() names the objects, their number and their place", async () => {
  const all = await findings({
    nft: [SVC, "nat KUBE-SVC-BBBBBBBBBBBBBBBB", "filter KUBE-SERVICES", "filter cali-INPUT"],
    tables: ["ip6 kube-proxy"],
    sets: ["KUBE-CLUSTER-IP", "KUBE-6-IPVS-IPS", "cali40s"],
    legacy: ["mangle KUBE-KUBELET-CANARY"],
  });
  assertEquals(all.map(({ evidence }) => evidence.join("; ")), [
    "2 chains KUBE-SVC-… in nat (iptables-nft); chain KUBE-SERVICES in filter (iptables-nft)",
    "table ip6 kube-proxy (nftables)",
    "2 ipsets: KUBE-CLUSTER-IP, KUBE-6-IPVS-IPS",
    "4 rules in iptables-nft; 1 rules in iptables-legacy; kubelet writes here (KUBE-KUBELET-CANARY)",
    "1 chain cali-… in filter (iptables-nft); 1 ipsets of Calico",
  ]);
});

Deno.test("findForeignSoftware() says how to move from k3s's policies, by how k3s was started", async () => {
  const cureOf = async (k3s: readonly string[] | undefined, options: FindingOptions = {}) => {
    const nft = ["filter KUBE-POD-FW-AAAAAAAAAAAAAAAA"];
    const found = await findings({ nft, ...(k3s && { k3s }) }, options);
    return found.find(({ id }) => id === "kube-router-policies")!.cure;
  };
  assertEquals(await cureOf(undefined), undefined, "nothing has to be done where it may stay");
  assertStringIncludes((await cureOf(undefined, POLICIES))!, "--run-firewall=false");
  const running = (await cureOf(OFF, POLICIES))!;
  assertStringIncludes(running, "start k3s with --disable-network-policy");
  assertStringIncludes(running, "--network-policy --takeover");
  const off = (await cureOf([...OFF, "--disable-network-policy"]))!;
  assertEquals(off.startsWith("start kube-relay once"), true);
});
