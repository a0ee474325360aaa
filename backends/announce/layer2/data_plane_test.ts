import { assertEquals, assertRejects } from "@std/assert";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { Layer2DataPlane } from "./data_plane.ts";

const FIRST = parseIpAddress("192.0.2.50");
const SECOND = parseIpAddress("192.0.2.51");
const DEVICES = [["eth0", "192.0.2.1"], ["eth1", "192.0.2.2"]] as const;

/** A machine with two interfaces in one network. */
class Machine {
  /** The interface of each address that kube-relay added. */
  readonly held = new Map<string, string>();
  readonly down = new Set<string>();
  onBatch = () => {};
  readonly commands = new FakeCommandRunner()
    .on("ip -4 -j addr show", () => ({ stdout: JSON.stringify(this.#devices()) }))
    .on("ip -4 -force -batch -", ({ stdin }) => {
      for (const line of stdin.trim().split("\n")) {
        const [, verb, address, device] = /^addr(?:ess)? (\S+) (\S+?)\/\d+ dev (\S+)/.exec(line)!;
        if (verb === "del") this.held.delete(address!);
        else this.held.set(address!, device!);
      }
      this.onBatch();
      return {};
    })
    .on("arping", {});

  #devices() {
    return DEVICES.map(([ifname, local]) => ({
      ifname,
      flags: this.down.has(ifname) ? ["UP", "NO-CARRIER"] : ["UP", "LOWER_UP"],
      operstate: this.down.has(ifname) ? "DOWN" : "UP",
      addr_info: [
        { family: "inet", local, prefixlen: 24, scope: "global", valid_life_time: 4294967295 },
        ...[...this.held].filter(([, device]) => device === ifname).map(([local]) => ({
          ...{ family: "inet", local, prefixlen: 32, scope: "global", deprecated: true },
          ...{ valid_life_time: 2, preferred_life_time: 0 },
        })),
      ],
    }));
  }
}

async function withPlane(test: (plane: Layer2DataPlane, machine: Machine) => Promise<void>) {
  const machine = new Machine();
  await using plane = new Layer2DataPlane(
    { clock: new FakeClock(), commands: machine.commands, logger: new MemoryLogger() },
    { family: "IPv4", announceIntervalMs: 0 },
  );
  await test(plane, machine);
}

function heldBy(plane: Layer2DataPlane): Record<string, string> {
  return Object.fromEntries(plane.inspect().held.map(({ address, device }) => [address, device]));
}

Deno.test("sync() moves addresses to other interfaces after a failure", () =>
  withPlane(async (plane, { commands }) => {
    const addresses = new Set<IpAddress>([FIRST]);
    await plane.sync(addresses, ["eth0"]);
    assertEquals(heldBy(plane), { [FIRST]: "eth0" });
    commands.failNext("timeout");
    await assertRejects(() => plane.sync(addresses, ["eth1"]));

    const { full } = await plane.sync(addresses, ["eth1"]);

    assertEquals([full, heldBy(plane)], [true, { [FIRST]: "eth1" }]);
  }));

Deno.test("recheck() during a sync is for the next one", () =>
  withPlane(async (plane, machine) => {
    await plane.sync(new Set([FIRST]), []);
    machine.onBatch = () => {
      machine.onBatch = () => {};
      machine.down.add("eth0");
      plane.recheck();
    };
    const addresses = new Set<IpAddress>([FIRST, SECOND]);
    await plane.sync(addresses, []);

    const { full } = await plane.sync(addresses, []);

    assertEquals([full, heldBy(plane)], [true, { [FIRST]: "eth1", [SECOND]: "eth1" }]);
  }));
