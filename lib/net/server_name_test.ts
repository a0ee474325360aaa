import { assertEquals } from "@std/assert";
import { findByServerName, tryParseServerName, tryParseServerNameClaim } from "./server_name.ts";

Deno.test("tryParseServerNameClaim() reads names, wildcards of one label, and the rest", () => {
  const rows: readonly (readonly [text: string, claim: string | undefined])[] = [
    ["shop.example.com", "shop.example.com"],
    ["Shop.Example.COM.", "shop.example.com"],
    ["localhost", "localhost"],
    ["_dmarc.example.com", "_dmarc.example.com"],
    ["*.Example.com", "*.example.com"],
    ["*", "*"],
    ...["", ".", "*.", "*.*.com", "a.*.com", "*shop.com", "shop", "-a.com", "a-.com", "a..com"]
      .map((text) => [text, text === "shop" ? text : undefined] as const),
    ...["192.0.2.1", "1.2", "2001:db8::1", "bücher.example", "\u212Aelvin.example", "a b.com"]
      .map((text) => [text, undefined] as const),
    [`${"a".repeat(64)}.com`, undefined],
    [`${"a.".repeat(126)}a`, `${"a.".repeat(126)}a`],
    [`${"a.".repeat(126)}aa`, undefined],
  ];
  for (const [text, claim] of rows) {
    assertEquals(tryParseServerNameClaim(text) as string | undefined, claim, text);
  }
  assertEquals(tryParseServerName("*.example.com"), undefined);
});

Deno.test("findByServerName() prefers the name, then its wildcard, then the rest", () => {
  const claims = new Map(
    ["a.example.com", "*.example.com", "*.com", "*"].map((each) => [each, each]),
  );
  const rows = [
    ["a.example.com", "a.example.com"],
    ["b.example.com", "*.example.com"],
    ["c.b.example.com", "*"],
    ["example.com", "*.com"],
    ["com", "*"],
    [undefined, "*"],
  ] as const;
  for (const [name, found] of rows) {
    const parsed = name === undefined ? undefined : tryParseServerName(name);
    assertEquals(findByServerName(claims, parsed), found, name);
  }
  claims.delete("*");
  assertEquals(findByServerName(claims, undefined), undefined);
});
