"""What tests share: small releases and ledgers, servers, seeded noise, programs that are ready."""
