import { assertEquals, assertThrows } from "@std/assert";
import { defaultControlSocket, defaultStateDirectory } from "./default_paths.ts";

function context(uid: number, env: Readonly<Record<string, string>> = {}) {
  return { uid, env: (name: string) => env[name] };
}

Deno.test("defaultControlSocket() of root uses nothing of the session", () => {
  const session = { XDG_RUNTIME_DIR: "/tmp/evil", HOME: "/tmp/evil" };
  assertEquals(defaultControlSocket(context(0, session)), "/run/kube-relay/control.sock");
});

Deno.test("defaultControlSocket() accepts no relative path from the environment", () => {
  const env = { RUNTIME_DIRECTORY: "run", XDG_RUNTIME_DIR: "run", HOME: "/home/a" };
  assertEquals(
    defaultControlSocket(context(1000, env)),
    "/home/a/.cache/kube-relay/control.sock",
  );
});

Deno.test("defaultStateDirectory() is where the control socket is, so that a boot clears it", () => {
  const user = context(1000, { XDG_RUNTIME_DIR: "/run/user/1000" });
  assertEquals(defaultStateDirectory(user), "/run/user/1000/kube-relay");
  assertEquals(defaultStateDirectory(context(0)), "/run/kube-relay");
});

Deno.test("defaultControlSocket() names the flags to set if there is no home", () => {
  assertThrows(() => defaultControlSocket(context(1000)), RangeError, "--control-socket");
});
