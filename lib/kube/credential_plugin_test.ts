import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { createTestCertificateAuthority } from "../../tests/support/builders/test_certificates.ts";
import { createCommandRunner } from "../os/command_runner.ts";
import { systemClock } from "../os/clock.ts";
import { credentialPlugin } from "./credential_plugin.ts";
import { KubeAuthError } from "./kube_identity.ts";

const EXEC = { apiVersion: "client.authentication.k8s.io/v1", command: "kubelogin" };
const FIELD = "users['me'].user.exec of '/etc/k'";

const CLUSTER = { server: "https://192.0.2.1:6443", insecure: false };

function plugin(exec: unknown, commands = new FakeCommandRunner(), clock = new FakeClock()) {
  return credentialPlugin(clock, commands, {
    exec,
    field: FIELD,
    folder: "/etc/",
    cluster: CLUSTER,
  });
}

function printed(status: Record<string, string>) {
  return { stdout: JSON.stringify({ kind: "ExecCredential", status }) };
}

async function failure(commands: FakeCommandRunner): Promise<string> {
  return (await assertRejects(() => plugin(EXEC, commands).ask(), KubeAuthError)).message;
}

Deno.test("credentialPlugin() gives a token, and a certificate with its key", async () => {
  const status = { token: "t", clientCertificateData: "cert", clientKeyData: "key" };
  const commands = new FakeCommandRunner().on("kubelogin", printed(status));
  const { authorization, cert, key } = await plugin(EXEC, commands).ask();
  assertEquals([authorization, cert, key], ["Bearer t", "cert", "key"]);
});

Deno.test("credentialPlugin() asks again 10 s before the credentials end, not sooner", async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 1));
  const expirationTimestamp = "2026-01-01T00:01:00Z";
  const commands = new FakeCommandRunner()
    .on("kubelogin", printed({ token: "t", expirationTimestamp }));
  const { ask } = plugin(EXEC, commands, clock);
  await ask();
  await clock.advance(49_999);
  await ask();
  assertEquals(commands.calls.length, 1);
  await clock.advance(1);
  await ask();
  assertEquals(commands.calls.length, 2);
});

Deno.test("credentialPlugin() is run once for callers that come together", async () => {
  const commands = new FakeCommandRunner().on("kubelogin", printed({ token: "t" }));
  const { ask } = plugin(EXEC, commands);
  await Promise.all([ask(), ask(), ask()]);
  await ask();
  assertEquals(commands.calls.length, 1);
});

Deno.test("credentialPlugin() is run again after a failure", async () => {
  const commands = new FakeCommandRunner().on("kubelogin", { code: 1, stderr: "no network\n" });
  const clock = new FakeClock();
  const { ask } = plugin(EXEC, commands, clock);
  const { message } = await assertRejects(ask, KubeAuthError);
  assertStringIncludes(message, `${FIELD}: 'kubelogin' ended with exit code 1: no network`);
  commands.on("kubelogin", printed({ token: "t" }));
  await clock.advance(1000);
  assertEquals((await ask()).authorization, "Bearer t");
});

const ENDED = "2025-12-31T23:59:59Z";

for (
  const [name, answer] of [
    ["fails", { code: 1, stderr: "no network" }],
    ["gives credentials that are refused", printed({ token: "t" })],
    ["gives credentials that have ended", printed({ token: "t", expirationTimestamp: ENDED })],
  ] as const
) {
  Deno.test(`credentialPlugin() waits longer each time between runs while it ${name}`, async () => {
    const commands = new FakeCommandRunner().on("kubelogin", answer);
    const clock = new FakeClock(Date.UTC(2026, 0, 1));
    const { ask, refuse } = plugin(EXEC, commands, clock);
    const ranAt: number[] = [];
    for (; clock.now() <= 200_000; await clock.advance(250)) {
      const { length } = commands.calls;
      await ask().catch(() => {});
      if (commands.calls.length > length) ranAt.push(clock.now() / 1000);
      refuse();
    }
    assertEquals(ranAt, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
  });
}

Deno.test("credentialPlugin() is run at once when credentials are refused that it gave long ago", async () => {
  const commands = new FakeCommandRunner().on("kubelogin", printed({ token: "one" }));
  const clock = new FakeClock();
  const { ask, refuse } = plugin(EXEC, commands, clock);
  await ask();
  await clock.advance(3_600_000);
  commands.on("kubelogin", printed({ token: "two" }));
  refuse();
  assertEquals((await ask()).authorization, "Bearer two");
});

Deno.test("credentialPlugin() refuses a key of another certificate", async () => {
  const authority = await createTestCertificateAuthority();
  const { cert } = await authority.issue({ commonName: "one" });
  const { key } = await authority.issue({ commonName: "two" });
  const status = { clientCertificateData: cert, clientKeyData: key };
  const message = await failure(new FakeCommandRunner().on("kubelogin", printed(status)));
  assertStringIncludes(message, "its key does not belong to its certificate");
});

Deno.test("credentialPlugin() resolves a relative path from the kubeconfig's folder", () => {
  assertEquals(plugin({ ...EXEC, command: "./bin/kubelogin" }).name, "/etc/./bin/kubelogin");
  assertEquals(plugin({ ...EXEC, command: "/opt/kubelogin" }).name, "/opt/kubelogin");
});

Deno.test("credentialPlugin() gives the reason why a program can't be run", async () => {
  const commands = new FakeCommandRunner().failCall(1, "not-permitted");
  assertStringIncludes(await failure(commands), `Cannot get credentials of ${FIELD}`);
});

for (
  const [name, stdout, part] of [
    ["is no JSON", "please log in: s3cret", "has to be an ExecCredential as JSON"],
    ["has no status", '{"kind":"s3cret"}', "'status' has to be an object"],
    ["has neither token nor certificate", '{"status":{"x":"s3cret"}}', "has to be a token, or"],
    [
      "has a certificate without a key",
      '{"status":{"clientCertificateData":"s3cret"}}',
      "has to be a token, or",
    ],
    [
      "has a token of another type",
      '{"status":{"token":{"s3cret":1}}}',
      "'status.token' has to be",
    ],
  ] as const
) {
  Deno.test(`credentialPlugin() refuses output that ${name}, without showing it`, async () => {
    const message = await failure(new FakeCommandRunner().on("kubelogin", { stdout }));
    assertStringIncludes(message, part);
    assertStringIncludes(message, FIELD);
    assert(!message.includes("s3cret"), message);
  });
}

for (
  const [exec, part] of [
    [{ ...EXEC, command: "" }, "'command' has to be a string that is not empty"],
    [{ command: "kubelogin" }, "'apiVersion' has to be"],
    [{ ...EXEC, args: "get-token" }, "'args' has to be a list"],
    [{ ...EXEC, args: [1] }, "'args[0]' has to be a string"],
    [{ ...EXEC, env: [{ value: "x" }] }, "'env[0].name' has to be"],
    [{ ...EXEC, provideClusterInfo: "yes" }, "'provideClusterInfo' has to be true or false"],
    [{ ...EXEC, interactiveMode: "Always" }, "there is no terminal"],
    ["kubelogin", "it has to be an object"],
  ] as const
) {
  Deno.test(`credentialPlugin() refuses ${JSON.stringify(exec)}`, () => {
    assertStringIncludes(assertThrows(() => plugin(exec), KubeAuthError).message, part);
  });
}

Deno.test("credentialPlugin() gives a real program its variables and KUBERNETES_EXEC_INFO", async () => {
  const exec = {
    ...EXEC,
    command: "sh",
    args: [
      "-c",
      `printf '{"status":{"token":"%s"}}' "$EXTRA/$(printf %s "$KUBERNETES_EXEC_INFO" | tr -d '"')"`,
    ],
    env: [{ name: "EXTRA", value: "own" }],
  };
  const commands = createCommandRunner(systemClock);
  const { ask } = credentialPlugin(systemClock, commands, {
    exec,
    field: FIELD,
    folder: "/",
    cluster: CLUSTER,
  });
  assertEquals(
    (await ask()).authorization,
    "Bearer own/{kind:ExecCredential,apiVersion:client.authentication.k8s.io/v1,spec:{interactive:false}}",
  );
});

Deno.test("credentialPlugin() ends a program that prints endlessly", async () => {
  const commands = createCommandRunner(systemClock);
  for (const command of ["exec yes", "exec yes >&2"]) {
    const exec = { ...EXEC, command: "sh", args: ["-c", command] };
    const { ask } = credentialPlugin(systemClock, commands, {
      exec,
      field: FIELD,
      folder: "/",
      cluster: CLUSTER,
    });
    await assertRejects(ask, KubeAuthError, "it printed more than 1048576 characters");
  }
});
