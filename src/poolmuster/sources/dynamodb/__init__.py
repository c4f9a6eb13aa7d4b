"""The DynamoDB store: one table that every instance reads (`poolmuster.ports.store`).

Items, the table's clock and the meaning of errors are pure; calls are signed by botocore and sent by aiohttp.
"""
