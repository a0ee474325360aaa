/**
 * A machine with IPVS for IPv4, as seen by those who run its programs.
 *
 * @module
 */
import { addressOfServer } from "../../backends/ipvs/virtual_server.ts";
import { SET_IDS, setName, setOptions } from "../../backends/ipvs/ipset_table.ts";
import type { CommandAnswer, CommandCall, FakeCommandRunner } from "./fake_command_runner.ts";
import { FakeIptablesMachine } from "./fake_iptables_machine.ts";
import { FakeIpvsKernel } from "./fake_ipvs_kernel.ts";

/** The machine. */
export class FakeIpvsMachine {
  readonly kernel = new FakeIpvsKernel();
  readonly iptables = new FakeIptablesMachine();
  /** Connections of a real server, by its key. */
  readonly connections = new Map<string, number>();

  constructor() {
    this.commands
      .on("cat /proc/net/ip_vs", () => ({ stdout: this.#procText() }))
      .on("ip -o addr show dev kube-ipvs0", () => this.#addresses())
      .on("ip link add kube-ipvs0", () => this.#makeDevice())
      .on("ip -batch -", (call) => this.#feed("ip", call))
      .on("ipset save", () => ({ stdout: this.#savedSets() }))
      .on("ipset restore", (call) => this.#feed("ipset", call))
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
        this.kernel.take(tool, line);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        if (tool !== "ipvsadm") return { code: 1, stderr: `Error in line ${index + 1}: ${reason}` };
        stderr += `${reason}\n`;
      }
    }
    return { stderr };
  }

  #addresses(): CommandAnswer {
    if (!this.kernel.hasDevice) {
      return { code: 1, stderr: 'Device "kube-ipvs0" does not exist.\n' };
    }
    const lines = [...this.kernel.addresses].map((each) =>
      `7: kube-ipvs0 inet ${each}/32 scope …\n`
    );
    return { stdout: lines.join("") };
  }

  #makeDevice(): CommandAnswer {
    if (this.kernel.hasDevice) return { code: 2, stderr: "RTNETLINK answers: File exists\n" };
    this.kernel.hasDevice = true;
    return {};
  }

  #savedSets(): string {
    return [...this.kernel.sets].map(([name, entries]) => {
      const id = SET_IDS.find((each) => setName(each, "IPv4") === name);
      const options = id === undefined ? "hash:ip family inet" : setOptions(id, "IPv4");
      const lines = [...entries].map((entry) => `add ${name} ${entry}\n`);
      return `create ${name} ${options} bucketsize 12 initval 0x1\n${lines.join("")}`;
    }).join("");
  }

  #procText(): string {
    const { table } = this.kernel;
    return table.getServers().map(({ key, scheduler, persistenceSeconds }) => {
      const { protocol, address, port } = addressOfServer(key)!;
      const rest = persistenceSeconds === undefined
        ? ""
        : ` persistent ${persistenceSeconds * 250}`;
      const reals = table.getReals(key).map((real) => {
        const [host = "", number = ""] = real.key.split(":");
        const active = this.connections.get(real.key) ?? 0;
        return `  -> ${hex(host, Number(number))} Masq ${real.weight} ${active} 0\n`;
      });
      return `${protocol}  ${hex(address, port)} ${scheduler}${rest}\n${reals.join("")}`;
    }).join("");
  }
}

function hex(address: string, port: number): string {
  const octets = address.split(".").map((octet) => Number(octet).toString(16).padStart(2, "0"));
  return `${octets.join("")}:${port.toString(16).padStart(4, "0")}`.toUpperCase();
}
