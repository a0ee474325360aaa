import { assert, assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { Sysctl } from "./sysctl.ts";

const FORWARD = "net.ipv4.ip_forward";
const MAX = "net.netfilter.nf_conntrack_max";

Deno.test("Sysctl.read() reads many by one command, and unknown ones do not affect the others", async () => {
  const commands = new FakeCommandRunner().on(`sysctl ${FORWARD} ${MAX}`, {
    code: 1,
    stdout: `${FORWARD} = 1 \n`,
    stderr: "sysctl: cannot stat /proc/sys/net/netfilter/nf_conntrack_max: " +
      "No such file or directory\n",
  });
  const { values, problems } = await new Sysctl(commands).read([FORWARD, MAX]);
  assertEquals([...values], [[FORWARD, "1"]]);
  assertEquals(problems.get(MAX)?.kind, "unknown");
  assertEquals(commands.calls.length, 1);
});

Deno.test("Sysctl.read() runs nothing for no names", async () => {
  const { values } = await new Sysctl(new FakeCommandRunner()).read([]);
  assertEquals(values.size, 0);
});

Deno.test("Sysctl.read() keeps blanks inside of a value", async () => {
  const commands = new FakeCommandRunner()
    .on("sysctl", { stdout: "net.ipv4.ip_local_port_range = 32768\t60999\n" });
  const { values } = await new Sysctl(commands).read(["net.ipv4.ip_local_port_range"]);
  assertEquals([...values.values()], ["32768\t60999"]);
});

for (const kind of ["not-found", "not-permitted"] as const) {
  Deno.test(`Sysctl.read() and write() report a tool that is ${kind}`, async () => {
    const commands = new FakeCommandRunner().failNext(kind);
    const { problems } = await new Sysctl(commands).read([FORWARD]);
    assertEquals(problems.get(FORWARD)?.kind, "no tool");
    commands.failNext(kind);
    const reasons = await new Sysctl(commands).write(new Map([[FORWARD, "1"], [MAX, "2"]]));
    assertEquals([...reasons].map(([name, reason]) => [name, reason.includes(kind)]), [
      [FORWARD, true],
      [MAX, true],
    ]);
  });
}

for (
  const [stderr, reason] of [
    ['sysctl: setting key "net.ipv4.ip_forward": Read-only file system', "Read-only file system"],
    ['sysctl: permission denied on key "net.ipv4.ip_forward"', "permission denied"],
    ['sysctl: setting key "net.ipv4.ip_forward": Invalid argument', "read-only here, or no value"],
    ["sysctl: error setting key 'net.ipv4.ip_forward': Read-only file system", "Read-only file"],
  ] as const
) {
  Deno.test(`Sysctl.write() reports the reason of '${stderr}'`, async () => {
    const commands = new FakeCommandRunner()
      // Older procps exit with 0 for this.
      .on(`sysctl -w ${FORWARD}=1`, { code: 0, stderr: `${stderr}\n` });
    const found = (await new Sysctl(commands).write(new Map([[FORWARD, "1"]]))).get(FORWARD);
    assert(found?.includes(reason), found);
    assert(!found?.startsWith("sysctl"), found);
    assert(!found?.includes(FORWARD), found);
  });
}

Deno.test("Sysctl.write() reports nothing on success", async () => {
  const commands = new FakeCommandRunner()
    .on(`sysctl -w ${FORWARD}=1`, { stdout: `${FORWARD} = 1\n` });
  assertEquals((await new Sysctl(commands).write(new Map([[FORWARD, "1"]]))).size, 0);
  assertEquals((await new Sysctl(commands).write(new Map())).size, 0);
  assertEquals(commands.calls.length, 1);
});

Deno.test("Sysctl.write() sets many by one command, and names the refused ones", async () => {
  const commands = new FakeCommandRunner().on(`sysctl -w ${FORWARD}=1 ${MAX}=2`, {
    code: 1,
    stdout: `${FORWARD} = 1\n`,
    stderr: `sysctl: setting key "${MAX}": Read-only file system\n`,
  });
  const reasons = await new Sysctl(commands).write(new Map([[FORWARD, "1"], [MAX, "2"]]));
  assertEquals([...reasons], [[MAX, "Read-only file system"]]);
});

Deno.test("Sysctl.write() reports a message that names no setting for all of them", async () => {
  const commands = new FakeCommandRunner().on("sysctl -w", { code: 139 });
  const reasons = await new Sysctl(commands).write(new Map([[FORWARD, "1"], [MAX, "2"]]));
  assertEquals([...reasons.values()], Array(2).fill("sysctl ended with code 139"));
});
