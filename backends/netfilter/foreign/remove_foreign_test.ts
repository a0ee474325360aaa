import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { removeKubeProxy } from "./remove_foreign.ts";

/** As the kernel prints it: IPv4 and ports in hexadecimal, IPv6 in full. */
const HEADER = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
`;
const SERVER_LINES: Readonly<Record<string, string>> = {
  "10.96.0.1:443/TCP": "TCP  0A600001:01BB rr ",
  "10.96.0.10:53/UDP": "UDP  0A60000A:0035 rr persistent 10800 FFFFFFFF",
  "[fd00:96::a]:53/UDP": "UDP  [fd00:0096:0000:0000:0000:0000:0000:000a]:0035 rr ",
  "192.168.0.5:30080/TCP": "TCP  C0A80005:7580 rr ",
  "192.168.0.5:8080/TCP": "TCP  C0A80005:1F90 wlc ",
  "203.0.113.7:80/TCP": "TCP  CB007107:0050 rr ",
  "203.0.113.7:81/TCP": "TCP  CB007107:0051 rr ",
  "198.51.100.1:80/TCP": "TCP  C6336401:0050 rr ",
};
/** Those of other programs: nothing of kube-proxy's names them. */
const FOREIGN = ["192.168.0.5:8080/TCP", "203.0.113.7:81/TCP", "198.51.100.1:80/TCP"];

const SETS = `create KUBE-EXTERNAL-IP hash:ip,port family inet
add KUBE-EXTERNAL-IP 203.0.113.7,tcp:80
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create KUBE-6-IPVS-IPS hash:ip family inet6
add KUBE-6-IPVS-IPS fd00:96::a
create mine hash:ip,port family inet
add mine 198.51.100.1,tcp:80
`;

/** A node with ipvs mode's things, without iptables' and nft's programs. */
class IpvsNode {
  readonly network = new FakeNetwork();
  readonly clock = new FakeClock();
  readonly commands = new FakeCommandRunner();
  servers = Object.keys(SERVER_LINES);
  sets = SETS;
  device = true;

  constructor() {
    const missing = { code: 1, stderr: "there is none" };
    this.network.interfaceAddresses = () => [
      { interfaceName: "eth0", address: parseIpAddress("192.168.0.5") },
      ...(this.device ? ["10.96.0.1", "10.96.0.10"] : []).map((address) => ({
        interfaceName: "kube-ipvs0",
        address: parseIpAddress(address),
      })),
    ];
    this.commands
      .on("iptables", missing).on("ip6tables", missing).on("nft", missing).on("nfacct", missing)
      .on("cat", { code: 1, stderr: "cat: /proc/net/ip_tables_names: No such file or directory" })
      .on("cat /proc/net/ip_vs", () => ({ stdout: this.#table() }))
      .on("ipset save", () => ({ stdout: this.sets }))
      .on("ipset list -n", () => ({
        stdout: [...this.sets.matchAll(/^create (\S+)/gm)].map(([, name]) => `${name}\n`).join(""),
      }))
      .on("ipset restore", ({ stdin }) => {
        for (const [, name] of stdin.matchAll(/^destroy (\S+)$/gm)) this.#destroy(name!);
        return {};
      })
      .on("ip -o link", () => ({ stdout: this.device ? "7: kube-ipvs0: <BROADCAST,NOARP>\n" : "" }))
      .on("ip link del", () => {
        this.device = false;
        return {};
      })
      .on("ipvsadm -R", ({ stdin }) => {
        for (const [, flag, address] of stdin.matchAll(/^-D (-t|-u) (\S+)$/gm)) {
          const gone = `${address}/${flag === "-t" ? "TCP" : "UDP"}`;
          this.servers = this.servers.filter((server) => server !== gone);
        }
        return {};
      });
  }

  #table(): string {
    const lines = this.servers.map((server) =>
      `${SERVER_LINES[server]}\n  -> 0A010001:1F90      Masq    1      0          0\n`
    );
    return HEADER + lines.join("");
  }

  #destroy(set: string): void {
    this.sets = this.sets.split("\n").filter((line) => line.split(" ")[1] !== set).join("\n");
  }

  remove(options: Partial<Parameters<typeof removeKubeProxy>[1]> = {}) {
    return removeKubeProxy(this, { dryRun: false, ...options });
  }
}

/** Returns the lines about ipvs. The other tools fail here and are not under test. */
function ipvsOnly(lines: readonly string[]): string[] {
  return lines.filter((line) => /virtual|ipset|device/.test(line));
}

Deno.test("removeKubeProxy() removes kube-proxy's virtual servers and leaves foreign ones", async () => {
  const node = new IpvsNode();
  const { removed, failed } = await node.remove();
  assertEquals(node.servers, FOREIGN);
  assertEquals(node.sets.includes("KUBE-"), false, node.sets);
  assertStringIncludes(node.sets, "add mine 198.51.100.1,tcp:80");
  assertEquals(node.device, false);
  assertEquals(ipvsOnly(removed), [
    ...["KUBE-EXTERNAL-IP", "KUBE-NODE-PORT-TCP", "KUBE-6-IPVS-IPS"].map((set) => `ipset ${set}`),
    "virtual server 10.96.0.1:443/TCP",
    "virtual server 10.96.0.10:53/UDP",
    "virtual server [fd00:96::a]:53/UDP",
    "virtual server 192.168.0.5:30080/TCP",
    "virtual server 203.0.113.7:80/TCP",
    "device kube-ipvs0 with its addresses",
  ]);
  assertEquals(ipvsOnly(failed), []);
  assertEquals(ipvsOnly((await node.remove()).removed), [], "nothing is left to do");
});

Deno.test("removeKubeProxy() keeps to sets before servers before the device, a process for each", async () => {
  const node = new IpvsNode();
  await node.remove();
  const changing = node.commands.calls.map(({ line }) => line)
    .filter((line) => /^(ipset restore|ipvsadm|ip link del)/.test(line));
  assertEquals(changing, ["ipset restore", "ipvsadm -R", "ip link del kube-ipvs0"]);
});

Deno.test("removeKubeProxy() leaves virtual servers of ipvs.excludeCIDRs", async () => {
  const node = new IpvsNode();
  await node.remove({ excludeCidrs: [parseCidr("10.96.0.10/32")] });
  assertEquals(node.servers, ["10.96.0.10:53/UDP", ...FOREIGN]);
});

Deno.test("removeKubeProxy() shows the input of each tool in a dry run and runs none", async () => {
  const node = new IpvsNode();
  const { commands = [], removed } = await node.remove({ dryRun: true });
  assertEquals(node.servers.length, Object.keys(SERVER_LINES).length);
  assertEquals(node.device, true);
  assertStringIncludes(commands.join(""), "ipvsadm -R <<'EOF'\n-D -t 10.96.0.1:443\n");
  assertStringIncludes(commands.join(""), "ip link del kube-ipvs0\n");
  assertEquals(ipvsOnly(removed), ipvsOnly((await node.remove()).removed));
});

Deno.test("removeKubeProxy() knows by the sets alone, when the device is gone already", async () => {
  const node = new IpvsNode();
  node.device = false;
  await node.remove();
  assertEquals(node.servers, ["10.96.0.1:443/TCP", "10.96.0.10:53/UDP", ...FOREIGN]);
});

Deno.test("removeKubeProxy() reports servers that ipvsadm did not remove, although its exit code is 0", async () => {
  const node = new IpvsNode();
  node.commands.on("ipvsadm -R", { stderr: "No such service" });
  const { failed } = await node.remove();
  const [line = ""] = ipvsOnly(failed);
  assertStringIncludes(line, "5 virtual servers (10.96.0.1:443/TCP, ");
  assertEquals(node.device, false, "the other parts are removed nevertheless");
});

Deno.test("removeKubeProxy() continues with the sets after one that is in use", async () => {
  const node = new IpvsNode();
  const tried: string[] = [];
  node.commands.on("ipset restore", ({ stdin }) => {
    tried.push(stdin);
    return stdin.includes("KUBE-NODE-PORT-TCP")
      ? { code: 1, stderr: "ipset v7.17: Error in line 2: Set cannot be destroyed: it is in use" }
      : {};
  });
  const { removed, failed } = await node.remove();
  assertEquals(tried.at(-1), "destroy KUBE-6-IPVS-IPS\n");
  assert(removed.includes("ipset KUBE-EXTERNAL-IP"), removed.join("\n"));
  assertStringIncludes(failed.join("\n"), "ipset KUBE-NODE-PORT-TCP: ");
});

Deno.test("removeKubeProxy() touches nothing of ipvs that the running mode keeps", async () => {
  const node = new IpvsNode();
  const { removed } = await node.remove({ mode: "ipvs" });
  assertEquals(ipvsOnly(removed), []);
  assertEquals(node.servers.length, Object.keys(SERVER_LINES).length);
});

Deno.test("removeKubeProxy() treats a machine without any tool as one without leftovers", async () => {
  const node = new IpvsNode();
  for (let call = 1; call < 100; call++) node.commands.failCall(call, "not-found");
  assertEquals(await node.remove(), { removed: [], failed: [] });
});

Deno.test("removeKubeProxy() reports objects that a plain user cannot read, without a failure", async () => {
  const node = new IpvsNode();
  node.commands.on("ipset", { code: 1, stderr: "Kernel error received: Operation not permitted" })
    .on("cat /proc/net/ip_vs", {
      code: 1,
      stderr: "cat: /proc/net/ip_vs: No such file or directory",
    });
  const { failed, kept = [] } = await node.remove();
  assertEquals(ipvsOnly(failed), []);
  assertStringIncludes(kept.join("\n"), "ipsets: not checked, which needs root: ");
});
