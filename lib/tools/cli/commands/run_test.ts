import { assertEquals } from "@std/assert";
import { FakeBackend } from "../../../../tests/support/fakes/fake_backend.ts";
import { FakeCommandRunner } from "../../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../../tests/support/fakes/memory_logger.ts";
import type { HostSettingRequest } from "../../../proxy/data_plane.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { runInitOnly } from "./run.ts";
import { configurationOf } from "../../../../tests/support/drivers/own_flags.ts";

class RequestingBackend extends FakeBackend {
  override hostSettings(): readonly HostSettingRequest[] {
    return [{ name: "net.ipv4.ip_forward", value: "1", purpose: "forward packets" }];
  }

  override start(): Promise<void> {
    return Promise.reject(new Error("nothing was to be started"));
  }
}

for (const [name, code, refused] of [["works", 0, 0], ["is refused", 1, 1]] as const) {
  Deno.test(`runInitOnly() sets up the machine, and ends well if that ${name}`, async () => {
    let value = "0";
    const commands = new FakeCommandRunner()
      .on("sysctl net", () => ({ stdout: `net.ipv4.ip_forward = ${value}\n` }))
      .on("sysctl -w net.ipv4.ip_forward=1", () => {
        if (code === 0) value = "1";
        return { code, stderr: code === 0 ? "" : "sysctl: permission denied on key\n" };
      });
    const argv = ["--init-only", "--control-socket=/run/t/control.sock"];
    const { flags, ...configuration } = await configurationOf(argv);
    const logger = new MemoryLogger();
    const dependencies: Partial<Dependencies> = {
      commands,
      backends: { userspace: (_, { family }) => new RequestingBackend(family) },
    };
    await runInitOnly({ ...dependencies as Dependencies, logger }, {
      ...configuration,
      mode: "userspace",
      families: ["IPv4", "IPv6"],
      flags,
    });
    assertEquals(logger.lines.at(-1)?.fields, { mode: "userspace", settings: 1, refused });
  });
}
