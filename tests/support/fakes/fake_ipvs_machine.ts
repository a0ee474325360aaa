/** A machine with IPVS for IPv4, as its programs show it. */
import type { InterfaceAddress } from "../../../lib/os/network.ts";
import { SET_IDS, setName, setOptions } from "../../../backends/ipvs/ipset_table.ts";
import type { CommandAnswer, CommandCall, FakeCommandRunner } from "./fake_command_runner.ts";
import { FakeIptablesMachine } from "./fake_iptables_machine.ts";
import { FakeIpvsKernel } from "./fake_ipvs_kernel.ts";

/** A network namespace of a pod, as `ip` shows and changes it. */
export class FakePod {
  /** The addresses of the tunnel's device; `undefined` = there is no device. */
  tunnel: Set<string> | undefined;
  isUp = false;
  alias = "";
  readonly settings = new Map([["arp_ignore", "0"], ["arp_announce", "0"]]);
  /** Addresses besides its own. */
  others: readonly string[] = [];
  /** Whether it lets nothing be changed. */
  isStubborn = false;

  constructor(readonly address: string, readonly mtu = 1500) {}

  /** The reply to `ip -j -d addr show`. */
  get links(): string {
    const link = (ifname: string, local: Iterable<string>, more: object) => ({
      ...{ ifname, flags: ["UP"], addr_info: [...local].map((each) => ({ local: each })) },
      ...more,
    });
    const flags = this.isUp ? ["UP"] : [];
    const tunnel = this.tunnel &&
      link("kr-dsr4", this.tunnel, { mtu: 1480, ifalias: this.alias, flags });
    return JSON.stringify([
      link("lo", ["127.0.0.1"], { mtu: 65_536 }),
      link("net1", this.others, { mtu: this.mtu }),
      link("eth0", [this.address], { mtu: this.mtu }),
      ...tunnel ? [tunnel] : [],
    ]);
  }

  /** Takes one command of `ip`; throws in its words. */
  take(line: string): void {
    const [object = "", verb = "", third = "", ...words] = line.split(" ");
    if (this.isStubborn) throw new Error("RTNETLINK answers: Device or resource busy");
    const need = () => {
      if (!this.tunnel) throw new Error('Cannot find device "kr-dsr4"');
      return this.tunnel;
    };
    if (object === "addr") {
      const address = third.replace(/\/\d+$/, "");
      if (verb === "replace") need().add(address);
      else if (!need().delete(address)) throw new Error("RTNETLINK answers: Cannot assign");
    } else if (verb === "add") {
      if (this.tunnel) throw new Error("RTNETLINK answers: File exists");
      this.tunnel = new Set();
      this.isUp = false;
      this.alias = "";
    } else if (verb === "del") {
      need();
      this.tunnel = undefined;
    } else if (words[0] === "alias") this.alias = words[1] ?? "";
    else this.isUp = need() && words[0] === "up";
  }

  /** Takes and answers arguments of `sysctl`. */
  sysctl(args: readonly string[]): string {
    return args.flatMap((each) => {
      const [, name = "", value] = /([a-z_]+)(?:=(.*))?$/.exec(each) ?? [];
      if (value !== undefined) this.settings.set(name, value);
      return each.startsWith("-") || value !== undefined ? [] : `${this.settings.get(name)}\n`;
    }).join("");
  }
}

/** The machine. */
export class FakeIpvsMachine {
  /** By the names of their namespaces. */
  readonly pods = new Map<string, FakePod>();
  /** Of the node's device to pods. */
  readonly settings = new Map([["rp_filter", "1"], ["accept_local", "0"]]);
  readonly kernel = new FakeIpvsKernel();
  readonly iptables = new FakeIptablesMachine();
  /** Of its own interfaces. */
  interfaceAddresses: readonly InterfaceAddress[] = [];
  /** So many readings to come leave out the first virtual server. */
  tornReadings = 0;
  /** Whether the device, where there is one, is a dummy. */
  isDummy = true;
  /** Connections of a real server, by its key. */
  readonly connections = new Map<string, number>();
  /** Returns the reason why a tool refuses a line; `undefined` = it accepts the line. */
  refuses: (tool: "ip" | "ipset" | "ipvsadm" | "sysctl", line: string) => string | undefined = () =>
    undefined;

  constructor() {
    this.commands
      .on("cat /proc/net/ip_vs", () => ({ stdout: this.#procText() }))
      .on("ip -j addr show dev kube-ipvs0", () => this.#addresses())
      .on("ip link add kube-ipvs0", () => this.#makeDevice())
      .on("ip -batch -", (call) => this.#feed("ip", call))
      .on("ip netns list", () => ({ stdout: [...this.pods.keys()].join(" (id: 0)\n") }))
      .on("ip -n ", (call) => this.#inPod(call))
      .on("ip netns exec ", ({ args: [, , name = "", , ...args] }) => {
        return { stdout: this.pods.get(name)?.sysctl(args) ?? "" };
      })
      .on("ip -4 -force -j -batch -", ({ stdin }) => ({
        stdout: stdin.trimEnd().split("\n")
          .map((line) => JSON.stringify([{ dst: line.split(" ").at(-1), dev: "cni0" }])).join("\n"),
      }))
      .on("sysctl -n net/ipv4/conf/all/rp_filter", () => ({
        stdout: `0\n${this.settings.get("rp_filter")}\n`,
      }))
      .on("sysctl -q", ({ args }) => {
        const refusal = this.refuses("sysctl", args.join(" "));
        if (refusal !== undefined) return { code: 1, stderr: refusal };
        for (const each of args) {
          const [, name = "", value] = /cni0\/(\w+)=(\d)$/.exec(each) ?? [];
          if (value !== undefined) this.settings.set(name, value);
        }
        return {};
      })
      .on("ip -o link show type dummy", () => ({ stdout: this.#dummies() }))
      .on("ip link del kube-ipvs0", () => {
        this.kernel.hasDevice = false;
        return {};
      })
      .on("ipset list -n", () => ({ stdout: [...this.kernel.sets.keys()].join("\n") }))
      .on("ipset save", () => ({ stdout: this.#savedSets() }))
      .on("ipset restore", (call) => this.#feed("ipset", call))
      .on("ipvsadm -L -n --rate --exact", () => ({ stdout: this.#rates() }))
      .on("ipvsadm -R", (call) => this.#feed("ipvsadm", call));
  }

  get commands(): FakeCommandRunner {
    return this.iptables.commands;
  }

  /** Everything that was written to, sorted. */
  dump(): string {
    return `${this.kernel.dump()}\n${this.iptables.tool.dump()}`;
  }

  /** All but ipvsadm stop at the first line that fails. */
  #feed(tool: "ip" | "ipset" | "ipvsadm", { stdin }: CommandCall): CommandAnswer {
    let stderr = "";
    for (const [index, line] of stdin.trimEnd().split("\n").entries()) {
      try {
        const refusal = this.refuses(tool, line);
        if (refusal !== undefined) throw new Error(refusal);
        this.kernel.take(tool, line);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        if (tool === "ipset") return { code: 1, stderr: `Error in line ${index + 1}: ${reason}` };
        if (tool === "ip") return { code: 1, stderr: `${reason}\nCommand failed -:${index + 1}\n` };
        stderr += `${reason}\n`;
      }
    }
    return { stderr };
  }

  #inPod({ args: [, name = "", ...words], stdin }: CommandCall): CommandAnswer {
    const pod = this.pods.get(name);
    if (pod === undefined) {
      return { code: 1, stderr: `Cannot open network namespace "${name}": No such file\n` };
    }
    if (words[0] === "-j") return { stdout: pod.links };
    const lines = words[0] === "-batch" ? stdin.trimEnd().split("\n") : [words.join(" ")];
    for (const [index, line] of lines.entries()) {
      try {
        const refusal = this.refuses("ip", line);
        if (refusal !== undefined) throw new Error(refusal);
        pod.take(line);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        return { code: 1, stderr: `${reason}\nCommand failed -:${index + 1}\n` };
      }
    }
    return {};
  }

  #addresses(): CommandAnswer {
    if (!this.kernel.hasDevice) {
      return { code: 1, stderr: 'Device "kube-ipvs0" does not exist.\n' };
    }
    const found = [...this.kernel.addresses].map((local) => ({ local, prefixlen: 32 }));
    return { stdout: JSON.stringify([{ ifname: "kube-ipvs0", addr_info: found }]) };
  }

  #dummies(): string {
    return this.isDummy && this.kernel.hasDevice
      ? "7: kube-ipvs0: <BROADCAST,NOARP> mtu 1500\n"
      : "";
  }

  #makeDevice(): CommandAnswer {
    if (this.kernel.hasDevice) return { code: 2, stderr: "RTNETLINK answers: File exists\n" };
    this.kernel.hasDevice = true;
    return {};
  }

  #savedSets(): string {
    return [...this.kernel.sets].map(([name, entries]) => {
      const id = SET_IDS.find((each) => setName(each, "IPv4") === name);
      const usual = id === undefined ? "hash:ip family inet" : setOptions(id, "IPv4");
      const options = this.kernel.setOptions.get(name) ?? usual;
      const lines = [...entries].map((entry) => `add ${name} ${entry}\n`);
      return `create ${name} ${options} bucketsize 12 initval 0x1\n${lines.join("")}`;
    }).join("");
  }

  /** Seven new connections in a second, for each virtual server. */
  #rates(): string {
    return this.kernel.table.getServers().map(({ key }) => {
      const { protocol } = addressOf(key);
      return `${protocol}  ${key.split(" ")[1]}  7 14 11 1204 88120\n`;
    }).join("");
  }

  #procText(): string {
    const { table } = this.kernel;
    const isTorn = this.tornReadings > 0;
    if (isTorn) this.tornReadings--;
    return table.getServers().slice(isTorn ? 1 : 0).map(
      ({ key, scheduler, persistenceSeconds }) => {
        const { protocol, address, port } = addressOf(key);
        const rest = persistenceSeconds === undefined
          ? ""
          : ` persistent ${persistenceSeconds * 250}`;
        const reals = table.getReals(key).map((real) => {
          const [host = "", number = ""] = real.key.split(":");
          const active = this.connections.get(real.key) ?? 0;
          return `  -> ${hex(host, Number(number))} ${
            FORWARDING[real.forwarding]
          } ${real.weight} ${active} 0\n`;
        });
        return `${protocol}  ${hex(address, port)} ${scheduler}${rest}\n${reals.join("")}`;
      },
    ).join("");
  }
}

/** As the kernel spells it. */
const FORWARDING = { "-m": "Masq", "-g": "Route", "-i": "Tunnel" } as const;

function addressOf(key: string) {
  const [, flag, address = "", port] = /^(\S+) (.*):(\d+)$/.exec(key) ?? [];
  const protocol = flag === "-t" ? "TCP" : flag === "-u" ? "UDP" : "SCTP";
  return { protocol, address, port: Number(port) };
}

function hex(address: string, port: number): string {
  const octets = address.split(".").map((octet) => Number(octet).toString(16).padStart(2, "0"));
  return `${octets.join("")}:${port.toString(16).padStart(4, "0")}`.toUpperCase();
}
