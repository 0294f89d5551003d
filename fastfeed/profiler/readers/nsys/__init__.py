"""Reads SQLite exports of Nsight Systems; `report` reads its own report files."""
